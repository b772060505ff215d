"""Two models on the same labelled images: the difference of their errors and of their losses, with 95 % intervals.

Only images on which one model is right and the other is wrong tell their errors apart. With the shares b of images that
the second model alone gets wrong and c of those that the first alone gets wrong, the difference is d = b − c. Its
interval holds every Δ that Tango's score test (Statistics in Medicine 17, 1998) does not refuse,

    |b − c − Δ| ≤ z √((2q + Δ(1 − Δ))/n),     q the likeliest share c where the difference is Δ,

so that it is never empty, also where no image tells the models apart. Weights and groups count by n: as many images as
have the same variance. The test that the errors are equal is McNemar's, exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lqf.evaluation.intervals import Estimate, Z, effective_size, variance_of

BISECTIONS = 60


@dataclass(frozen=True)
class Difference:
    """By how much the second model's figures are above the first one's.

    Attributes:
        error: difference of the weighted error rates.
        log_loss: difference of the mean −ln p(label).
        p_value: of McNemar's exact test on the numbers of images; None with unequal weights or groups, for which it
            does not hold.
    """

    error: Estimate
    log_loss: Estimate
    p_value: float | None


def difference(
    wrong: tuple[np.ndarray, np.ndarray],
    losses: tuple[np.ndarray, np.ndarray],
    weights: np.ndarray,
    units: np.ndarray,
) -> Difference:
    """Of two models, the first and the second.

    Args:
        wrong: (N,) whether each image is taken for another class.
        losses: (N,) −ln p(label).
        weights: (N,) above zero.
        units: (N,) numbers of what is independent of each other.
    """
    a, b = (w.astype(bool) for w in wrong)
    share, plain = weights / weights.sum(), bool((weights == weights[0]).all() and len(np.unique(units)) == len(units))
    return Difference(
        of_errors(share, ~a & b, a & ~b, units),
        _of_means(share, losses[1] - losses[0], units),
        mcnemar(int((~a & b).sum()), int((a & ~b).sum())) if plain else None,
    )


def of_errors(share: np.ndarray, only_second: np.ndarray, only_first: np.ndarray, units: np.ndarray) -> Estimate:
    """Tango's interval for as many images as have the same variance.

    Args:
        share: (N,) weights, which sum to 1.
        only_second: (N,) images that the second model alone gets wrong.
        only_first: (N,) likewise.
        units: (N,).
    """
    b, c = float(share @ only_second), float(share @ only_first)
    d = b - c
    variance = variance_of(share * (only_second.astype(float) - only_first - d), units)
    low, high = tango(b, c, effective_size(b + c - d * d, variance, share, units))
    return Estimate(d, min(low, d), max(high, d))


def tango(b: float, c: float, n: float) -> tuple[float, float]:
    """Both ends for shares b and c among n: where the score, which falls with Δ, is +z and −z."""

    def score(delta: float) -> float:
        first, last = (2 - b + c) * delta - b - c, -c * delta * (1 - delta)
        q = (math.sqrt(max(first * first - 8 * last, 0.0)) - first) / 4
        spread = math.sqrt(max(2 * q + delta * (1 - delta), 1e-300) / n)
        return (b - c - delta) / spread

    return _where(lambda x: score(x) - Z, -1.0, b - c), _where(lambda x: score(x) + Z, b - c, 1.0)


def mcnemar(b: int, c: int) -> float:
    """The exact two-sided p-value: b of b + c fair coins."""
    n, less = b + c, min(b, c)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(less + 1)) / 2**n)


def _of_means(share: np.ndarray, differences: np.ndarray, units: np.ndarray) -> Estimate:
    """The mean of paired differences with the interval of their own spread."""
    mean = float(share @ differences)
    spread = Z * math.sqrt(variance_of(share * (differences - mean), units))
    return Estimate(mean, mean - spread, mean + spread) if spread > 0 else Estimate(mean)


def _where(falling: Callable[[float], float], low: float, high: float) -> float:
    """Its zero between two ends, by bisection; an end where it has none."""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2
