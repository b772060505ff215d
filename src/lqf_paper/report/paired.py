"""By how much one method's test error is above another's, with a 95 % interval that knows they saw the same images.

Where the predictions of both are kept, images that both get right or wrong drop out: of one run each, Tango's interval
(`lqf.evaluation.paired_difference`); of several, means over the runs, and a bootstrap that draws test images (the same
for both) and runs (of each method for itself). Otherwise the two errors count as independent shares of all images, with
Newcombe's interval (Statistics in Medicine 17, 1998), which is wider: unpaired, and the result says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lqf.evaluation.intervals import LEVEL, wilson
from lqf.evaluation.paired_difference import mcnemar, tango
from lqf_paper.report.winners import Winner, Winners

DRAWS = 2000


@dataclass(frozen=True)
class Gap:
    """An error minus another.

    Attributes:
        value: the difference; of several runs, of the means.
        low, high: its 95 % interval.
        paired: whether image by image.
        runs: of the first method and of the second.
        p_value: of McNemar's exact test, for one run each.
    """

    value: float
    low: float
    high: float
    paired: bool
    runs: tuple[int, int]
    p_value: float | None = None

    def points(self) -> str:
        """In points, with a dagger where it is unpaired."""
        mark = "" if self.paired else "†"
        return f"{100 * self.value:+.1f} ({100 * self.low:+.1f}, {100 * self.high:+.1f}){mark}"

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def gap(method: Winner | None, to: Winner | None, *, together: bool = False) -> Gap | None:
    """The first one's error minus the second one's; None where one has none.

    ``together``: the k-th runs of both belong together, as those on the same choice of training images do.
    """
    if method is None or to is None:
        return None
    a, b = method.wrong, to.wrong
    if a is not None and b is not None:
        return paired(a, b, together=together and len(a) == len(b))
    return unpaired(method.error, to.error, len(method.labels), (len(method.runs), len(to.runs)))


def paired(a: np.ndarray, b: np.ndarray, *, together: bool = False) -> Gap:
    """Of what is wrong in the runs of two methods, (S, N) and (T, N), on the same N images."""
    runs, n, value = (len(a), len(b)), a.shape[1], float(a.mean() - b.mean())
    if runs == (1, 1):
        only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
        low, high = tango(only_a / n, only_b / n, n)
        return Gap(value, min(low, value), max(high, value), True, runs, mcnemar(only_a, only_b))
    rng = np.random.default_rng(0)
    times = rng.multinomial(n, np.full(n, 1 / n), size=DRAWS) / n  # (D, N)
    of_a, of_b = times @ a.T, times @ b.T  # (D, S), (D, T)
    drawn = _of_runs(of_a - of_b, rng) if together else _of_runs(of_a, rng) - _of_runs(of_b, rng)
    low, high = (float(q) for q in np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    if high - low < 1e-12:  # no image tells the runs apart
        low, high = (value + end for end in tango(0.0, 0.0, n))
    return Gap(value, min(low, value), max(high, value), True, runs)


def unpaired(p: float, q: float, n: int, runs: tuple[int, int] = (1, 1)) -> Gap:
    """Of two shares among n, as if of different images."""
    (low_p, high_p), (low_q, high_q) = wilson(p, n), wilson(q, n)
    low, high = math.hypot(p - low_p, high_q - q), math.hypot(high_p - p, q - low_q)
    return Gap(p - q, p - q - low, p - q + high, False, runs)


def relative_gaps(found: Winners, method: str, to: str) -> dict[str, tuple[float, float, float]]:
    """Per data set (error − reference)/reference with its interval, the reference's own error taken as it is."""
    out = {}
    for name, row in found.items():
        g, reference = gap(row[method], row[to]), row[to]
        if g is not None and reference is not None and reference.error:
            value = (row[method].error - reference.error) / reference.error  # type: ignore[union-attr]
            out[name] = (
                value,
                value + (g.low - g.value) / reference.error,
                value + (g.high - g.value) / reference.error,
            )
    return out


def mean_gap(gaps: Sequence[Gap]) -> Gap | None:
    """The mean over data sets, whose images have nothing to do with each other: ends add up as standard errors do."""
    if not gaps:
        return None
    value, k = math.fsum(g.value for g in gaps) / len(gaps), len(gaps)
    below, above = math.hypot(*(g.value - g.low for g in gaps)) / k, math.hypot(*(g.high - g.value for g in gaps)) / k
    runs = (min(g.runs[0] for g in gaps), min(g.runs[1] for g in gaps))
    return Gap(value, value - below, value + above, all(g.paired for g in gaps), runs)


def _of_runs(errors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(D, S) errors of every run in every draw -> (D,) the mean over runs drawn with replacement."""
    d, s = errors.shape
    return np.take_along_axis(errors, rng.integers(s, size=(d, s)), 1).mean(1)
