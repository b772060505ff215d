"""Predictions against labels: errors, confusions, calibration, as JSON values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np


def measure(classes: Sequence[str], labels: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
    """Weighted error in all and of every class that occurs, and who is taken for whom how often."""
    wrong = predicted != labels
    per_class = {}
    for k, name in enumerate(classes):
        if (rows := labels == k).any():
            per_class[name] = {"n": int(rows.sum()), "error": _mean(wrong[rows], weights[rows])}
    known = [c["error"] for c in per_class.values() if c["error"] is not None]
    return {
        "n": len(labels),
        "error": _mean(wrong, weights),
        "mean_class_error": sum(known) / len(known) if known else None,
        "per_class": per_class,
        "confusions": [
            {"label": classes[c.label], "predicted": classes[c.predicted], "n": c.n}
            for c in confusions(labels.tolist(), predicted.tolist())
        ],
    }


def _mean(wrong: np.ndarray, weights: np.ndarray) -> float | None:
    return float((wrong * weights).sum() / weights.sum()) if weights.sum() > 0 else None


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


def reliability(
    confidence: np.ndarray, right: np.ndarray, *, most_bins: int = 10, least: int = 25
) -> list[dict[str, float]]:
    """Mean confidence and share of right answers in bins of equally many samples, from unsure to sure.

    Args:
        confidence: (N,) probability of the predicted class.
        right: (N,) whether it is the label.
        most_bins: bins at most.
        least: samples of a bin at least (there is always one bin).
    """
    order, n = confidence.argsort(kind="stable"), len(confidence)
    bins = max(1, min(most_bins, n // least))
    edges = [round(k * n / bins) for k in range(bins + 1)]
    parts = [order[a:b] for a, b in pairwise(edges) if b > a]
    return [{"confidence": float(confidence[i].mean()), "right": float(right[i].mean()), "n": len(i)} for i in parts]


def calibration_error(bins: Sequence[dict[str, float]]) -> float | None:
    """Mean distance between confidence and share of right answers, over the samples of all bins."""
    n = sum(b["n"] for b in bins)
    return sum(b["n"] * abs(b["confidence"] - b["right"]) for b in bins) / n if n else None
