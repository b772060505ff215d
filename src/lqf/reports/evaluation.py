"""Answers on labelled images: a test set's, predicted, and those of leave-one-out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lqf.data import Images, Samples, load_samples
from lqf.data.labels import class_array
from lqf.evaluation.calibration import probabilities
from lqf.evaluation.figures import Evaluation
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.evaluation.measure import measure
from lqf.evaluation.reliability import reliability
from lqf.fitting import Model
from lqf.fitting.class_weights import own_weights
from lqf.reports.classifier import Classifier
from lqf.reports.predictions import Prediction, predictions
from lqf.utils.progress import SILENT, Progress


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What a model says of labelled images.

    Attributes:
        classes: of the model.
        labels: (M,) classes.
        predicted: (M,) classes.
        probabilities: (M, n_classes).
        weights: (M,).
        groups: (M,) or None.
    """

    classes: tuple[str, ...]
    labels: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray
    weights: np.ndarray
    groups: tuple[str, ...] | None = None

    @cached_property
    def evaluation(self) -> Evaluation:
        """The answers compared with the labels."""
        return measure(self.classes, self.labels, self.predicted, self.probabilities, self.weights, self.groups)

    @cached_property
    def result(self) -> dict[str, Any]:
        """The evaluation as JSON values."""
        return self.evaluation.to_dict()

    @property
    def right(self) -> np.ndarray:
        """(M,) whether the prediction is the label."""
        return self.predicted == self.labels

    @property
    def confidence(self) -> np.ndarray:
        """(M,) probability of the predicted class."""
        return self.probabilities[np.arange(len(self.predicted)), self.predicted]

    def reliability(self) -> list[dict[str, float]]:
        """Confidence against right answers, of the images that count."""
        counts = self.weights > 0
        return reliability(self.confidence[counts], self.right[counts], self.weights[counts])


@dataclass(frozen=True, kw_only=True)
class Tested(Answered):
    """Predictions of a labelled test set.

    Attributes:
        images: opened.
        all_samples: also those that could not be read.
    """

    images: Images
    all_samples: Samples

    def rows(self) -> list[Prediction]:
        """Every image of the test set with its label, also those that could not be read."""
        given = [self.classes[k] for k in self.all_samples.labels]
        return predictions(
            self.all_samples, self.images.skipped, self.classes, self.predicted, self.probabilities, given=given
        )

    def cases(self) -> list[int]:
        """Images worth explaining: the surest mistakes, then the least sure right answers."""
        sure = self.confidence.argsort(kind="stable")[::-1]
        wrong, right = sure[~self.right[sure]].tolist(), sure[self.right[sure]].tolist()
        return [*wrong[:4], *right[:-3:-1]]


def tested(model: Classifier, test: Any, y: Any = None, *, strict: bool = False, progress: Progress = SILENT) -> Tested:
    """Predict a labelled test set, in any form that `load_samples` takes."""
    classes = model.fitted_.classes
    known = classes if y is None else class_array(classes)
    all_samples = load_samples(test, y, classes=known, tensors=model.tensors, strict=strict, progress=progress)
    images = model.open(all_samples, strict=strict, progress=progress)
    predicted, _, p = model.scores(images, progress=progress)
    samples = images.samples
    return Tested(
        classes=classes,
        labels=samples.labels,
        predicted=predicted,
        probabilities=p,
        weights=samples.weights,
        groups=samples.groups,
        images=images,
        all_samples=all_samples,
    )


def left_out(fitted: Model, loo: LeaveOneOut) -> Answered:
    """What leave-one-out says of the training images, where it is known; they count as test images do, without the
    weights of their classes.
    """
    known, train = loo.known.cpu().numpy().nonzero()[0], fitted.train
    return Answered(
        classes=fitted.classes,
        labels=train.labels[known],
        predicted=loo.predicted.cpu().numpy()[known],
        probabilities=probabilities(loo.outputs, fitted.beta).cpu().numpy()[known],
        weights=own_weights(fitted)[known],
        groups=None if train.groups is None else tuple(train.groups[i] for i in known),
    )
