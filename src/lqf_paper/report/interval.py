"""The mean of a few draws, with an interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t at 97.5 % for 1 to 9 degrees of freedom; 1.96 stands in for more than that."""


@dataclass(frozen=True)
class Interval:
    """mean ± half, the 95 % interval over n draws; None where there are too few of them (no draw, a single draw).

    Of two draws it is thirteen times as wide as their distance from the mean: they themselves are shown then.

    Attributes:
        mean: of all draws.
        half: half the width of the interval.
        n: number of draws.
        low, high: the lowest and the highest draw.
    """

    mean: float | None
    half: float | None
    n: int
    low: float | None = None
    high: float | None = None

    @property
    def shown(self) -> float:
        """What is drawn above and below the mean."""
        if self.half is None or self.mean is None or self.high is None:
            return 0.0
        return self.high - self.mean if self.n == 2 else self.half

    def percent(self) -> str:
        """In per cent, with a sign."""
        if self.mean is None:
            return "–"
        if self.n == 2 and self.low is not None and self.high is not None:
            return f"{100 * self.mean:+.0f} ({100 * self.low:+.0f}, {100 * self.high:+.0f})"
        return f"{100 * self.mean:+.0f}" + ("" if self.half is None else f" ± {100 * self.half:.0f}")

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def interval(values: Sequence[float]) -> Interval:
    """The 95 % interval of the mean."""
    n = len(values)
    if n < 2:
        return Interval(values[0], None, n, values[0], values[0]) if n else Interval(None, None, 0)
    t = T_95[n - 2] if n - 2 < len(T_95) else 1.96
    half = t * statistics.stdev(values) / math.sqrt(n)
    return Interval(statistics.fmean(values), half, n, min(values), max(values))
