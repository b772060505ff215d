"""How far chance can move a figure that was measured on some images: 95 % intervals.

Images that belong together (a group) are resampled together, and every image counts with its weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
Z = 1.959963984540054
"""Quantile of the normal distribution that leaves (1 − `LEVEL`)/2 above."""
NONE = 1e-15
"""A variance so small is rounding."""
LARGEST = 700.0
"""Exponent up to which `math.exp` is finite."""
DRAWS = 1000


@dataclass(frozen=True)
class Estimate:
    """A measured figure with its 95 % interval.

    Attributes:
        value: None where it is not defined.
        low, high: None where there is no interval: with the value, or where all draws agree (no mistake at all), which
            is no certainty but says nothing about the uncertainty.
    """

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def complement(self) -> Estimate:
        """Of 1 − value: the error of an accuracy."""
        if self.value is None or self.low is None or self.high is None:
            return Estimate(None if self.value is None else 1 - self.value)
        return Estimate(1 - self.value, 1 - self.high, 1 - self.low)


def units_of(groups: tuple[str, ...] | None, n: int) -> np.ndarray:
    """(N,) numbers of what is resampled as one: groups, or single images."""
    return np.arange(n) if groups is None else np.unique(np.array(groups, dtype=object), return_inverse=True)[1]


# --- closed forms -----------------------------------------------------------------------------------------------------


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's score interval of a share among n: never empty, also for 0 and 1."""
    centre, spread = share + Z**2 / (2 * n), Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    low, high = (centre - spread) / (1 + Z**2 / n), (centre + spread) / (1 + Z**2 / n)
    return min(max(low, 0.0), share), max(min(high, 1.0), share)


def of_share(value: float, coefficients: np.ndarray, deviations: np.ndarray, units: np.ndarray) -> Estimate:
    """A weighted share Σ aᵢ rᵢ with Wilson's interval for as many images as have the same variance.

    With equal weights and without groups that is the number of images.

    Args:
        value: the share.
        coefficients: (N,) aᵢ, which sum to 1.
        deviations: (N,) rᵢ minus its expectation, e.g. the share itself, or that of the image's class.
        units: (N,) what is independent of each other.
    """
    variance = variance_of(coefficients * deviations, units)
    return Estimate(value, *wilson(value, effective_size(value * (1 - value), variance, coefficients, units)))


def effective_size(spread: float, variance: float, coefficients: np.ndarray, units: np.ndarray) -> float:
    """How many independent observations give a mean this variance.

    Args:
        spread: variance of one observation.
        variance: of the mean; where all observations are the same it has none, and Kish's effective number of units
            counts.
        coefficients: (N,) of the observations in the mean, which sum to 1.
        units: (N,) what is independent of each other.
    """
    if variance > NONE:
        size = min(spread / variance, 1 / float(np.square(coefficients).sum()))
    else:
        size = 1 / float(np.square(np.bincount(units, coefficients)).sum())
    return max(size, 1.0)


def on_log_scale(value: float, variance: float) -> Estimate:
    """A positive mean of skewed values; none without a variance."""
    if variance <= 0 or value <= 0:
        return Estimate(value)
    factor = math.exp(min(Z * math.sqrt(variance) / value, LARGEST))
    return Estimate(value, value / factor, value * factor)


def on_logit_scale(value: float, variance: float) -> Estimate:
    """A figure between 0 and 1 with an interval that stays there; none without a variance."""
    if variance <= NONE or not 0 < value < 1:
        return Estimate(value)
    odds, spread = math.log(value / (1 - value)), Z * math.sqrt(variance) / (value * (1 - value))
    return Estimate(value, *(1 / (1 + math.exp(min(-x, LARGEST))) for x in (odds - spread, odds + spread)))


def variance_of(parts: np.ndarray, units: np.ndarray) -> float:
    """Of a sum of parts (N,) with mean zero, those of one unit together.

    Where units are groups it is larger by U/(U − 1) and (t/z)², so that `Z` stands for the quantile of Student's t: the
    variance itself is then known from few numbers.
    """
    sums = np.bincount(units, parts)
    few = (len(sums) / (len(sums) - 1)) * (_student(len(sums) - 1) / Z) ** 2 if 1 < len(sums) < len(parts) else 1.0
    return few * float(np.square(sums).sum())


def _student(freedom: int) -> float:
    """The quantile of Student's t that `Z` is for infinite degrees of freedom (Abramowitz and Stegun 26.7.5)."""
    if freedom < 4:
        return (12.706204736, 4.302652730, 3.182446305)[freedom - 1]
    z, n = Z, freedom
    terms = (
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
    )
    return z + sum(terms)


# --- bootstrap --------------------------------------------------------------------------------------------------------


def bootstrap(
    figures: Callable[[np.ndarray], np.ndarray], weights: np.ndarray, units: np.ndarray, seed: int = 0
) -> np.ndarray:
    """(`DRAWS`, K) figures of data drawn with replacement, unit by unit.

    Args:
        figures: of weights (N,), K values; NaN where one is not defined.
        weights: (N,) of the images.
        units: (N,).
        seed: of the draws.
    """
    rng, n = np.random.default_rng(seed), int(units.max()) + 1
    draws = (np.bincount(rng.integers(n, size=n), minlength=n)[units] for _ in range(DRAWS))
    return np.stack([figures(weights * times) for times in draws])


def percentile(value: float, drawn: np.ndarray) -> Estimate:
    """The interval between the quantiles of the draws."""
    ends = _quantiles(drawn)
    return Estimate(value) if ends is None else Estimate(value, min(ends[0], value), max(ends[1], value))


def of_distance(value: float, drawn: np.ndarray, by_chance: np.ndarray) -> Estimate:
    """Of a mean distance, which chance alone raises, in new draws once more.

    The lower end is 0 where a model without any distance would show as much by chance, otherwise reflected: value −
    (upper quantile − value).

    Args:
        value: that was measured.
        drawn: (D,) values in draws from the data.
        by_chance: (D,) values that a model without any distance shows.
    """
    ends = _quantiles(drawn)
    if ends is None:
        return Estimate(value)
    chance = value <= float(np.quantile(by_chance, (1 + LEVEL) / 2))
    return Estimate(value, 0.0 if chance else min(max(2 * value - ends[1], 0.0), value), max(ends[1], value))


def _quantiles(drawn: np.ndarray) -> tuple[float, float] | None:
    known = drawn[np.isfinite(drawn)]
    if not len(known):
        return None
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return None if high - low <= 1e-12 else (low, high)
