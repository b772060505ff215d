"""Error on test images when part of the training data is dropped, by exact refits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from lqf.analysis.method import Method
from lqf.analysis.queries import Queries
from lqf.analysis.units import Units
from lqf.errors import LQFError
from lqf.linear.targets import error_rate
from lqf.utils.exactness import Level


@dataclass(frozen=True)
class Curve:
    """Test error after dropping shares of the training samples in three orders.

    Attributes:
        shares: dropped shares of the samples.
        least, most: test error after dropping the least / most informative ones, one number per share.
        random: mean over ``repeats`` random draws; ``random_deviation`` is their standard deviation.
        repeats: number of draws.
        n_test: number of test images.
        level: how exact the refits are.
    """

    shares: tuple[float, ...]
    least: tuple[float, ...]
    most: tuple[float, ...]
    random: tuple[float, ...]
    random_deviation: tuple[float, ...]
    repeats: int
    n_test: int
    level: Level

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


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
        return [error_rate(method.refitted(test, kept(units, order, share)), test.labels) for share in shares]

    generator = torch.Generator().manual_seed(seed)
    draws = [errors(torch.randperm(len(units), generator=generator)) for _ in range(repeats)]
    random = torch.tensor(draws, dtype=torch.float64)
    return Curve(
        shares,
        tuple(errors(least)),
        tuple(errors(most)),
        tuple(random.mean(0).tolist()),
        tuple(random.std(0, correction=1 if repeats > 1 else 0).tolist()),
        repeats,
        len(test),
        method.level,
    )


def kept(units: Units, order: Tensor, share: float) -> Tensor:
    """Numbers of the samples left when units are dropped in ``order`` until ``share`` of all samples is gone."""
    left = round(share * len(units.ids))
    gone = torch.zeros(len(units), dtype=torch.bool)
    for unit in order.tolist():
        size = int((units.member == unit).sum())
        if size <= left:
            gone[unit] = True
            left -= size
    return (~gone[units.member]).nonzero()[:, 0]
