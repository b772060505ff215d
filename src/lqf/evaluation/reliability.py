"""Calibration: is the model right as often as it is sure?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST_BINS, LEAST = 10, 25
"""Bins at most, and samples of each at least (there is always one bin)."""


def equal_bins(confidence: np.ndarray, most_bins: int = MOST_BINS, least: int = LEAST) -> np.ndarray:
    """(N,) the bin of every sample, from unsure to sure; each has equally many of them."""
    n = len(confidence)
    bins = max(1, min(most_bins, n // least))
    edges = [round(k * n / bins) for k in range(1, bins)]
    rank = np.empty(n, dtype=np.int64)
    rank[confidence.argsort(kind="stable")] = np.arange(n)
    return np.searchsorted(edges, rank, side="right")


def reliability(
    confidence: np.ndarray,
    right: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    most_bins: int = MOST_BINS,
    least: int = LEAST,
) -> list[dict[str, float]]:
    """Mean confidence and share of right answers in bins of equally many samples, from unsure to sure.

    Args:
        confidence: (N,) probability of the predicted class.
        right: (N,) whether it is the label.
        weights: (N,) positive; None: all alike.
        most_bins: bins at most.
        least: samples of a bin at least (there is always one bin).
    """
    w, bins = np.ones(len(confidence)) if weights is None else weights, equal_bins(confidence, most_bins, least)
    return [
        {
            "confidence": float(np.average(confidence[i], weights=w[i])),
            "right": float(np.average(right[i], weights=w[i])),
            "n": int(i.sum()),
            "weight": float(w[i].sum()),
        }
        for i in (bins == k for k in np.unique(bins))
    ]


def calibration_error(bins: Sequence[dict[str, float]]) -> float | None:
    """Mean distance between confidence and share of right answers, over the samples of all bins."""
    total = sum(b["weight"] for b in bins)
    return sum(b["weight"] * abs(b["confidence"] - b["right"]) for b in bins) / total if total else None
