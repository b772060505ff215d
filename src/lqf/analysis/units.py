"""Who leaves together: samples alone, or the groups they were given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.utils.text import counted


@dataclass(frozen=True)
class Units:
    """U sets of training samples; a sample belongs to one of them, or to none.

    Attributes:
        names: (U,) ids of the samples, or names of the groups.
        member: (N,) the unit of every sample, −1 where it has none.
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

    def some(self, chosen: Tensor) -> Units:
        """Some of the units; samples of the others belong to none (−1)."""
        place = torch.full((len(self),), -1)
        place[chosen] = torch.arange(len(chosen))
        return Units(tuple(self.names[i] for i in chosen.tolist()), place[self.member], self.ids)

    def __repr__(self) -> str:
        return f"Units({self.counted})"

    @property
    def counted(self) -> str:
        """How many there are, in words."""
        n = int((self.member >= 0).sum())
        grouped = n > len(self)
        return f"{counted(len(self), 'group')} of {counted(n, 'sample')}" if grouped else counted(n, "sample")

    def __len__(self) -> int:
        return len(self.names)

    def samples(self, unit: int) -> Tensor:
        """Numbers of the samples of one unit."""
        return (self.member == unit).nonzero()[:, 0]

    def last(self, order: Tensor, share: float) -> Tensor:
        """Numbers of the samples, ascending, of the units that are last in an order, until ``share`` of all samples."""
        left, kept = round(share * len(self.ids)), []
        for unit in reversed(order.tolist()):
            members = self.samples(unit)
            if len(members) <= left:
                kept.append(members)
                left -= len(members)
        return torch.cat(kept).sort()[0] if kept else torch.zeros(0, dtype=torch.long)

    def add_up(self, values: Tensor, dim: int = 0) -> Tensor:
        """Sums over the samples of every unit: N entries along ``dim`` become U."""
        shape = list(values.shape)
        shape[dim] = len(self)
        return values.new_zeros(shape).index_add_(dim, self.member.to(values.device), values)
