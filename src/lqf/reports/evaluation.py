"""A labelled test set, predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lqf.data import Images, load_samples
from lqf.estimator import LQFClassifier
from lqf.evaluation.metrics import measure
from lqf.utils.progress import SILENT, Progress


@dataclass(frozen=True)
class Tested:
    """Predictions of labelled images.

    Attributes:
        images: opened.
        predicted: (M,) classes.
        probabilities: (M, n_classes).
        result: errors and confusions, as `measure` returns them.
    """

    images: Images
    predicted: np.ndarray
    probabilities: np.ndarray
    result: dict[str, Any]

    @property
    def labels(self) -> np.ndarray:
        """(M,) classes."""
        return self.images.samples.labels

    @property
    def right(self) -> np.ndarray:
        """(M,) whether the prediction is the label."""
        return self.predicted == self.labels

    @property
    def confidence(self) -> np.ndarray:
        """(M,) probability of the predicted class."""
        return self.probabilities[np.arange(len(self.predicted)), self.predicted]

    def cases(self) -> list[int]:
        """Images worth explaining: the surest mistakes, then the least sure right answers."""
        sure = self.confidence.argsort(kind="stable")[::-1]
        wrong, right = sure[~self.right[sure]].tolist(), sure[self.right[sure]].tolist()
        return [*wrong[:4], *right[:-3:-1]]


def tested(model: LQFClassifier, test: Any, *, strict: bool = False, progress: Progress = SILENT) -> Tested:
    """Predict a labelled test set, in any form that `load_samples` takes."""
    classes = model.fitted_.classes
    samples = load_samples(test, classes=classes, tensors=model.tensors, strict=strict, progress=progress)
    images = model.open(samples, strict=strict, progress=progress)
    predicted, _, p = model.scores(images, progress=progress)
    samples = images.samples
    return Tested(images, predicted, p, measure(classes, samples.labels, predicted, samples.weights))
