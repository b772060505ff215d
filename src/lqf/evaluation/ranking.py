"""AUC: how often an image of a class scores higher for it than an image of another class."""

from __future__ import annotations

import numpy as np

from lqf.evaluation.intervals import Estimate, on_logit_scale, variance_of


def area(low: np.ndarray, high: np.ndarray) -> float:
    """P(high > low) + P(high = low)/2."""
    scores, positive = np.concatenate([low, high]), np.repeat([False, True], [len(low), len(high)])
    return _area(scores, positive, np.ones(len(scores)))[0]


def auc(probabilities: np.ndarray, labels: np.ndarray, weights: np.ndarray, units: np.ndarray) -> Estimate:
    """Of two classes, or the mean over the classes of each against the rest; those without images of both do not count.

    Its variance is DeLong's, with the parts of a group added up (Obuchowski), its interval that of its logit.

    Args:
        probabilities: (N, n_classes).
        labels: (N,).
        weights: (N,) positive.
        units: (N,) what is independent of each other.
    """
    classes = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
    found = [_area(probabilities[:, k], labels == k, weights) for k in classes if 0 < (labels == k).sum() < len(labels)]
    if not found:
        return Estimate(None)
    parts = np.mean([parts for _, parts in found], 0)
    return on_logit_scale(float(np.mean([value for value, _ in found])), variance_of(parts, units))


def _area(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """The weighted area, and (N,) every image's part in its deviation: its own share of pairs in the right order."""
    place = np.unique(scores, return_inverse=True)[1]
    above = _share_below(place, weights * ~positive)[positive]  # of the negative images, below each positive one
    below = 1 - _share_below(place, weights * positive)[~positive]
    w_high, w_low = weights[positive], weights[~positive]
    value, parts = float((w_high * above).sum() / w_high.sum()), np.empty(len(scores))
    parts[positive] = w_high * (above - value) / w_high.sum()
    parts[~positive] = w_low * (below - value) / w_low.sum()
    return value, parts


def _share_below(place: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(N,) share of the weight that lies below every place; ties count half."""
    sums = np.bincount(place, weights)
    return ((np.cumsum(sums) - sums / 2) / sums.sum())[place]
