"""Error on test images when part of the training data is dropped, by exact refits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lqf.analysis.method import Method
from lqf.analysis.queries import Queries
from lqf.analysis.units import Units
from lqf.errors import LQFError
from lqf.linear.targets import error_rate
from lqf.utils.exactness import Answer
from lqf.utils.frames import Tabular
from lqf.utils.text import counted


@dataclass(frozen=True, kw_only=True, repr=False)
class Curve(Tabular, Answer):
    """Test error (3, S) after dropping S shares of the training samples in three orders: `least`, `most`, `random`.

    Attributes:
        shares: dropped shares of the samples.
        random_deviation: (S,) standard deviation over the random draws.
        repeats: number of draws, of which `random` is the mean.
        n_test: number of test images.
    """

    shares: tuple[float, ...]
    random_deviation: tuple[float, ...]
    repeats: int
    n_test: int

    def _about(self) -> str:
        return f"error on {counted(self.n_test, 'image')} at {counted(len(self.shares), 'share')} dropped"

    @property
    def least(self) -> tuple[float, ...]:
        """After dropping the least informative ones, one number per share."""
        return tuple(self.value[0].tolist())

    @property
    def most(self) -> tuple[float, ...]:
        """After dropping the most informative ones."""
        return tuple(self.value[1].tolist())

    @property
    def random(self) -> tuple[float, ...]:
        """After dropping random ones, on average."""
        return tuple(self.value[2].tolist())

    def rows(self) -> list[dict[str, Any]]:
        """One for every share that was dropped."""
        names = ("share", "least", "most", "random", "random_deviation")
        columns = (self.shares, self.least, self.most, self.random, self.random_deviation)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        names = ("shares", "least", "most", "random", "random_deviation", "repeats", "n_test", "level")
        return {name: getattr(self, name) for name in names}


def drop_curve(
    method: Method,
    test: Queries,
    units: Units,
    least: Tensor,
    most: Tensor,
    shares: Sequence[float],
    *,
    repeats: int,
    seed: int,
) -> Curve:
    """Refit without a share of the samples, units whole, chosen in three orders; the first share is always 0."""
    if bool((test.labels < 0).any()):
        raise LQFError("a curve of test errors needs a label for every image; give labelled images, or y=")
    bad = [s for s in shares if not 0 <= s < 1]
    if bad:
        raise LQFError(f"the share {bad[0]!r} cannot be dropped; give numbers from 0 up to, but not including, 1")
    shares = tuple(sorted({0.0, *map(float, shares)}))

    def errors(order: Tensor) -> list[float]:
        return [error_rate(method.refitted(test, remaining(units, order, share)), test.labels) for share in shares]

    generator = torch.Generator().manual_seed(seed)
    draws = [errors(torch.randperm(len(units), generator=generator)) for _ in range(repeats)]
    random = torch.tensor(draws, dtype=torch.float64)
    orders = [errors(least), errors(most), random.mean(0).tolist()]
    return Curve(
        torch.tensor(orders, dtype=torch.float64),
        method.level,
        shares=shares,
        random_deviation=tuple(random.std(0, correction=1 if repeats > 1 else 0).tolist()),
        repeats=repeats,
        n_test=len(test),
    )


def remaining(units: Units, order: Tensor, share: float) -> Tensor:
    """Numbers of the samples left when units are dropped in ``order`` until ``share`` of all samples is gone."""
    left = round(share * len(units.ids))
    gone = torch.zeros(len(units), dtype=torch.bool)
    for unit in order.tolist():
        size = int((units.member == unit).sum())
        if size <= left:
            gone[unit] = True
            left -= size
    return (~gone[units.member]).nonzero()[:, 0]
