"""A change of the training data: samples left out, labels changed, weights changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lqf.errors import LQFError


@dataclass(frozen=True)
class Change:
    """What becomes of some samples.

    Attributes:
        weights: sample number -> new weight as a multiple of its own; 0 leaves it out, 2 counts it twice.
        labels: sample number -> new class number.
    """

    weights: dict[int, float]
    labels: dict[int, int]

    @classmethod
    def of(
        cls,
        ids: Sequence[str],
        classes: Sequence[str],
        without: Iterable[str | int] = (),
        relabel: Mapping[Any, Any] | None = None,
        weights: Mapping[Any, float] | None = None,
    ) -> Change:
        """From ids (or numbers) of samples and names (or numbers) of classes, checked."""
        number = {name: i for i, name in enumerate(ids)}
        new = dict.fromkeys(sample_numbers(without, ids), 0.0)
        for key, factor in (weights or {}).items():
            if not (math.isfinite(factor) and factor >= 0):
                raise LQFError(f"the weight of `{key}` is {factor!r}; give a number from 0 on, 1 leaves it as it is")
            new[_sample(key, number)] = float(factor)
        names = {name: k for k, name in enumerate(classes)}
        return cls(new, {_sample(k, number): _class(v, names) for k, v in (relabel or {}).items()})

    def __bool__(self) -> bool:
        return bool(self.weights or self.labels)

    def factors(self, n: int) -> Tensor:
        """(N,) factor of every sample's weight."""
        out = torch.ones(n, dtype=torch.float64)
        for i, factor in self.weights.items():
            out[i] = factor
        return out

    def relabelled(self, labels: Tensor) -> Tensor:
        """(N,) labels after the change."""
        out = labels.clone()
        for i, k in self.labels.items():
            out[i] = k
        return out


def sample_numbers(keys: str | int | Iterable[str | int], names: Sequence[str], what: str = "sample") -> list[int]:
    """Numbers of samples (or units) that are given by id or number, one or many."""
    number = {name: i for i, name in enumerate(names)}
    given = [keys] if isinstance(keys, str | int | np.integer) else list(keys)
    return [_sample(key, number, what) for key in given]


def _sample(key: Any, number: dict[str, int], what: str = "sample") -> int:
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if not 0 <= key < len(number):
            raise LQFError(f"there is no training {what} number {key}; they go from 0 to {len(number) - 1}")
        return int(key)
    if key not in number:
        raise LQFError(
            f"`{key}` is not a training {what}; they are called like `{next(iter(number))}` (see samples.csv)"
        )
    return number[str(key)]


def _class(key: str | int, names: dict[str, int]) -> int:
    if str(key) in names:
        return names[str(key)]
    raise LQFError(f"there is no class `{key}`; the model knows {', '.join(names)}")
