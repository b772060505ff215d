"""A model's answers on labelled images, compared with the labels: error, F1, AUC, log loss, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from lqf.evaluation.figures import Evaluation, OfClass
from lqf.evaluation.intervals import (
    DRAWS,
    Estimate,
    bootstrap,
    of_distance,
    of_share,
    on_log_scale,
    percentile,
    units_of,
    variance_of,
)
from lqf.evaluation.ranking import auc
from lqf.evaluation.reliability import equal_bins

LEAST_PROBABILITY = float(np.finfo(np.float64).eps)
"""That the log loss counts for a label: a probability that is zero in float64 is not an infinite loss."""


def measure(
    classes: Sequence[str],
    labels: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    weights: np.ndarray,
    groups: tuple[str, ...] | None = None,
) -> Evaluation:
    """Compare predictions with labels.

    Args:
        classes: names.
        labels: (N,) classes.
        predicted: (N,) classes.
        probabilities: (N, n_classes).
        weights: (N,); an image of weight 0 is counted in the confusions and not measured.
        groups: (N,) images that belong together are resampled together; None: each image alone.
    """
    n_classes, counts = len(classes), weights > 0
    confusion = np.bincount(labels * n_classes + predicted, minlength=n_classes**2).reshape(n_classes, n_classes)
    found = {k: OfClass(classes[k], int(n)) for k, n in enumerate(confusion.sum(1)) if n}
    if not counts.any():
        return Evaluation(tuple(classes), confusion, tuple(found.values()))
    units = np.unique(units_of(groups, len(labels))[counts], return_inverse=True)[1]
    answers = _Answers(labels[counts], predicted[counts], probabilities[counts], weights[counts], units)
    f1, macro_f1, calibration_error = answers.resampled()
    return Evaluation(
        tuple(classes),
        confusion,
        tuple(replace(of, error=answers.error_of(k), f1=f1[k]) for k, of in found.items()),
        accuracy=answers.accuracy(),
        balanced_accuracy=answers.balanced_accuracy(),
        macro_f1=macro_f1,
        auc=auc(answers.probabilities, answers.labels, answers.weights, units),
        log_loss=answers.log_loss(),
        calibration_error=calibration_error,
        bins=int(answers.bins.max()) + 1,
    )


@dataclass(frozen=True)
class _Answers:
    """Images that count, with what a model says of them.

    Attributes:
        labels, predicted: (N,) classes.
        probabilities: (N, n_classes).
        weights: (N,) above 0.
        units: (N,) what is independent of each other.
    """

    labels: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray
    weights: np.ndarray
    units: np.ndarray

    @cached_property
    def right(self) -> np.ndarray:
        """(N,) whether the prediction is the label."""
        return self.predicted == self.labels

    @cached_property
    def recall(self) -> np.ndarray:
        """(n_classes,) weighted share of right answers; NaN for a class without images."""
        return _ratio(*(np.bincount(self.labels, w, self.n_classes) for w in (self.weights * self.right, self.weights)))

    @cached_property
    def bins(self) -> np.ndarray:
        """(N,) numbers, by the probability of the predicted class."""
        return equal_bins(self.confidence)

    @cached_property
    def confidence(self) -> np.ndarray:
        """(N,) probability of the predicted class."""
        return self.probabilities[np.arange(len(self.labels)), self.predicted]

    @cached_property
    def losses(self) -> np.ndarray:
        """(N,) −ln p(label)."""
        return log_losses(self.probabilities, self.labels)

    @property
    def n_classes(self) -> int:
        return self.probabilities.shape[1]

    def accuracy(self) -> Estimate:
        share = float(np.average(self.right, weights=self.weights))
        return of_share(share, self.weights / self.weights.sum(), self.right - share, self.units)

    def balanced_accuracy(self) -> Estimate:
        """Every class has the same total weight, and its images deviate from its own share."""
        totals = np.bincount(self.labels, self.weights, self.n_classes)
        share, n_known = float(np.nanmean(self.recall)), int((totals > 0).sum())
        coefficients = self.weights / (n_known * totals[self.labels])
        return of_share(share, coefficients, self.right - self.recall[self.labels], self.units)

    def error_of(self, k: int) -> Estimate:
        """Of one class."""
        rows = self.labels == k
        if not rows.any():
            return Estimate(None)
        wrong, weights = ~self.right[rows], self.weights[rows] / self.weights[rows].sum()
        share = float(wrong @ weights)
        return of_share(share, weights, wrong - share, np.unique(self.units[rows], return_inverse=True)[1])

    def log_loss(self) -> Estimate:
        """The values are skewed: the interval is that of the logarithm of their mean."""
        share = self.weights / self.weights.sum()
        value = float(share @ self.losses)
        return on_log_scale(value, variance_of(share * (self.losses - value), self.units))

    def resampled(self) -> tuple[list[Estimate], Estimate, Estimate]:
        """F1 of every class, their mean, and the calibration error, with intervals by bootstrap."""
        values, drawn = self._figures(self.weights), bootstrap(self._figures, self.weights, self.units)
        of = [percentile(float(v), d) if v == v else Estimate(None) for v, d in zip(values, drawn.T, strict=True)]
        return of[:-2], of[-2], of_distance(float(values[-1]), drawn[:, -1], self._gaps_by_chance())

    def _figures(self, weights: np.ndarray) -> np.ndarray:
        """(n_classes + 2,) F1 of every class, their mean, and the calibration error; NaN where not defined."""
        of_labels, of_predicted, of_right = (
            np.bincount(k, w, self.n_classes)
            for k, w in ((self.labels, weights), (self.predicted, weights), (self.labels, weights * self.right))
        )
        f1 = np.where(of_labels > 0, _ratio(2 * of_right, of_labels + of_predicted), np.nan)
        return np.array([*f1, np.nanmean(f1), self._gap(weights, self.right)])

    def _gap(self, weights: np.ndarray, right: np.ndarray) -> float:
        """Mean distance between confidence and share of right answers in the bins."""
        return float(np.abs(np.bincount(self.bins, weights * (self.confidence - right))).sum() / weights.sum())

    def _gaps_by_chance(self) -> np.ndarray:
        """(`DRAWS`,) of a model that is right as often as it is sure."""
        rng = np.random.default_rng(0)
        draws = (rng.random(len(self.labels)) < self.confidence for _ in range(DRAWS))
        return np.array([self._gap(self.weights, right) for right in draws])


def log_losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(N,) −ln p(label)."""
    return -np.log(probabilities[np.arange(len(labels)), labels].clip(LEAST_PROBABILITY, 1))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Elementwise; NaN where the whole is 0."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
