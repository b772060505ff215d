"""Error on test images when part of the training data is dropped, by exact refits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lqf.solution import Level


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
