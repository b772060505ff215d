"""What was measured on labelled images: each figure with its interval, in all and by class."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lqf.evaluation.intervals import LEVEL, Estimate
from lqf.evaluation.metrics import confusions

UNDEFINED = Estimate(None)
FIGURES = ("accuracy", "error", "balanced_accuracy", "macro_f1", "auc", "log_loss", "calibration_error")
"""Those of `Evaluation`, in the order in which they are reported."""


@dataclass(frozen=True)
class OfClass:
    """What is known of one class.

    Attributes:
        name: of the class.
        n: its images.
        error: weighted share of them that are taken for another class (1 − recall).
        f1: 2 · right / (labelled so + predicted so).
    """

    name: str
    n: int
    error: Estimate = UNDEFINED
    f1: Estimate = UNDEFINED


@dataclass(frozen=True)
class Evaluation:
    """Answers compared with labels; every share is weighted by the images' weights.

    Attributes:
        classes: all of the model.
        confusion: (n_classes, n_classes) numbers of images; rows are labels, columns predictions.
        per_class: the classes that occur among the labels; means over classes are over these.
        accuracy: share of right answers, with Wilson's interval.
        balanced_accuracy: mean over the classes of the share of right answers, likewise.
        macro_f1: mean of the classes' F1.
        auc: of two classes, or the mean of each class against the rest; interval by DeLong.
        log_loss: mean of −ln p(label).
        calibration_error: mean distance between confidence and accuracy (ECE) in ``bins`` bins of equally many images.
        bins: how many; at most 10, each of at least 25 images.
    """

    classes: tuple[str, ...]
    confusion: np.ndarray = field(repr=False)
    per_class: tuple[OfClass, ...] = field(repr=False)
    accuracy: Estimate = UNDEFINED
    balanced_accuracy: Estimate = UNDEFINED
    macro_f1: Estimate = UNDEFINED
    auc: Estimate = UNDEFINED
    log_loss: Estimate = UNDEFINED
    calibration_error: Estimate = UNDEFINED
    bins: int = 0

    @property
    def n(self) -> int:
        """Number of images."""
        return int(self.confusion.sum())

    @property
    def error(self) -> Estimate:
        """1 − accuracy."""
        return self.accuracy.complement()

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        figures = {name: getattr(self, name) for name in FIGURES}
        return {
            "n": self.n,
            **{name: figure.value for name, figure in figures.items()},
            "mean_class_error": self.balanced_accuracy.complement().value,
            "intervals": {name: figure.interval for name, figure in figures.items()},
            "interval_level": LEVEL,
            "calibration_bins": self.bins,
            "per_class": {of.name: _class_dict(of) for of in self.per_class},
            "confusions": self._confusions(),
            "classes": list(self.classes),
            "confusion_matrix": self.confusion.tolist(),
        }

    def _confusions(self) -> list[dict[str, Any]]:
        places = np.indices(self.confusion.shape).reshape(2, -1)
        labels, predicted = (np.repeat(i, self.confusion.ravel()).tolist() for i in places)
        found = confusions(labels, predicted)
        return [{"label": self.classes[c.label], "predicted": self.classes[c.predicted], "n": c.n} for c in found]


def _class_dict(of: OfClass) -> dict[str, Any]:
    shares = {"error": of.error.value, "error_interval": of.error.interval}
    return {"n": of.n, **shares, "f1": of.f1.value, "f1_interval": of.f1.interval}
