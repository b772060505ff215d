"""Predictions against labels: confusions, and the chance in a share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Confusion(NamedTuple):
    """So often, and for such a share of its images, a class is taken for another."""

    label: int
    predicted: int
    n: int
    share: float


def confusions(labels: Sequence[int], predicted: Sequence[int]) -> list[Confusion]:
    """Which class is taken for which, the most frequent first, then the largest share."""
    of_class = Counter(labels)
    pairs = Counter((a, b) for a, b in zip(labels, predicted, strict=True) if a != b)
    found = [Confusion(a, b, n, n / of_class[a]) for (a, b), n in pairs.items()]
    return sorted(found, key=lambda c: (-c.n, -c.share, c.label, c.predicted))


def standard_error(rate: float | None, n: float) -> float:
    """√(p(1 − p)/n) of a share p among n, at least that of one wrong among n + 2: zero errors are not a certainty."""
    p = min(max(rate or 0.0, 1 / (n + 2)), 1 - 1 / (n + 2))
    return math.sqrt(p * (1 - p) / max(n, 1))
