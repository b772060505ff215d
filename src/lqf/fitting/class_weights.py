"""Weights of the classes: what every image's own weight is multiplied by before there is a problem to solve.

From then on they are sample weights like any others: in the objective, in all errors, in leave-one-out and in the
folds, in the models that are saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from lqf.data import Images, Samples, with_weights
from lqf.errors import LQFError
from lqf.evaluation.balance import class_factors
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.stack import Model
from lqf.settings import Settings
from lqf.utils import naming
from lqf.utils.text import counted, listed

ClassWeight = str | Mapping[str, float] | None
"""Of `Settings.class_weight`."""
UNEQUAL = 4.0
"""The largest class is so many times the smallest, or more: worth a word."""


def check_class_weight(class_weight: ClassWeight, classes: tuple[str, ...]) -> None:
    """LQFError where a weight is given for a class that there is not."""
    if not isinstance(class_weight, Mapping):
        return
    unknown = [name for name in class_weight if name not in classes]
    if unknown:
        which = "classes" if len(unknown) > 1 else "a class"
        raise LQFError(
            f"{naming.name('class_weight')} names {which} that the data do not have: {listed(unknown)}; they have "
            f"{listed(classes, 20)}"
        )


def class_weights(class_weight: ClassWeight, samples: Samples) -> dict[str, float] | None:
    """Of every class by name; None where all images keep their own weights."""
    if class_weight is None:
        return None
    if isinstance(class_weight, Mapping):
        return {name: float(class_weight.get(name, 1.0)) for name in samples.classes}
    factors = class_factors(torch.tensor(samples.weights), torch.tensor(samples.labels), len(samples.classes))
    return dict(zip(samples.classes, factors.tolist(), strict=True))


def with_class_weights(images: Images, weights: Mapping[str, float] | None) -> Images:
    """The images with the weights of their classes in their own."""
    if weights is None:
        return images
    samples = images.samples
    factors = np.array([weights[name] for name in samples.classes])
    return with_weights(images, samples.weights * factors[samples.labels])


def own_weights(model: Model) -> np.ndarray:
    """(N,) weights of the training images without those of their classes, as the data had them."""
    weights = model.report.class_weights
    if weights is None:
        return model.train.weights
    return model.train.weights / np.array([weights[name] for name in model.classes])[model.train.labels]


def as_they_come(model: Model, loo: LeaveOneOut) -> LeaveOneOut:
    """Leave-one-out of all training images in which no class counts more than its images do: for a comparison with
    test images, which have no class weights.
    """
    return replace(loo, weights=torch.tensor(own_weights(model)))


def about_unequal(samples: Samples, settings: Settings) -> str:
    """A sentence where some classes weigh much less than others and nothing was said about it; else empty."""
    if settings.class_weight is not None or settings.choose_by == "classes":
        return ""
    totals = np.bincount(samples.labels, samples.weights, minlength=len(samples.classes))
    most, least = int(totals.argmax()), int(totals.argmin())
    if totals[most] < UNEQUAL * totals[least]:
        return ""
    n = samples.counts
    return (
        f"classes are very unequal ({counted(int(n[most]), 'image')} of `{samples.classes[most]}`, {n[least]:,} of "
        f"`{samples.classes[least]}`); {naming.given('class_weight', 'balanced')} makes all count alike, and rare ones "
        "are missed less"
    )
