"""Who leaves together: samples alone, or the groups they were given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Units:
    """U sets of training samples; every sample belongs to exactly one.

    Attributes:
        names: (U,) ids of the samples, or names of the groups.
        member: (N,) the unit of every sample.
        ids: (N,) ids of the samples.
    """

    names: tuple[str, ...]
    member: Tensor
    ids: tuple[str, ...]

    @classmethod
    def of(cls, ids: Sequence[str], groups: Sequence[str] | None = None) -> Units:
        """One unit per sample, or per group."""
        if groups is None:
            return cls(tuple(ids), torch.arange(len(ids)), tuple(ids))
        number = {g: i for i, g in enumerate(dict.fromkeys(groups))}
        return cls(tuple(number), torch.tensor([number[g] for g in groups]), tuple(ids))

    def __len__(self) -> int:
        return len(self.names)

    def samples(self, unit: int) -> Tensor:
        """Numbers of the samples of one unit."""
        return (self.member == unit).nonzero()[:, 0]

    def add_up(self, values: Tensor, dim: int = 0) -> Tensor:
        """Sums over the samples of every unit: N entries along ``dim`` become U."""
        shape = list(values.shape)
        shape[dim] = len(self)
        return values.new_zeros(shape).index_add_(dim, self.member.to(values.device), values)
