"""Whether samples suffice to train a classifier on."""

from __future__ import annotations

import numpy as np

from lqf.data.samples import Samples
from lqf.errors import LQFError
from lqf.utils.text import counted, listed


def check_trainable(samples: Samples) -> None:
    """Refuse samples from which a classifier cannot be trained and checked by leave-one-out.

    That takes two classes or more, each with two images or more, and of two groups or more where there are groups: with
    one, leaving it out leaves a class that was never seen. An image of weight zero counts as absent, as it does in the
    objective.

    Raises:
        LQFError: With the names of the classes or images at fault.
    """
    if len(samples) == 0:
        raise LQFError(f"{samples.name} has no image that can be used")
    unknown = [samples.ids[i] for i in np.flatnonzero(samples.labels < 0)]
    if unknown:
        raise LQFError(f"{samples.name} has no label for {listed(unknown)}; training needs one for every image")
    if len(samples.classes) < 2:
        raise LQFError(f"{samples.name} has one class ({listed(samples.classes)}); classification needs two or more")
    counts = np.bincount(samples.labels[samples.weights > 0], minlength=len(samples.classes))
    few = [f"{name} ({counted(int(n), 'image')})" for name, n in zip(samples.classes, counts, strict=True) if n < 2]
    if few:
        weight = " of positive weight" if (samples.weights == 0).any() else ""
        raise LQFError(
            f"{samples.name} has classes with fewer than two images{weight}: {listed(few)}; "
            "add images to them or leave these classes out"
        )
    _check_groups(samples)


def _check_groups(samples: Samples) -> None:
    if samples.groups is None:
        return
    seen = {(k, g) for k, g, w in zip(samples.labels, samples.groups, samples.weights, strict=True) if w > 0}
    counts = np.bincount([k for k, _ in seen], minlength=len(samples.classes))
    alone = [name for name, n in zip(samples.classes, counts, strict=True) if n < 2]
    if alone:
        raise LQFError(
            f"{samples.name} has classes whose images are all in one group: {listed(alone)}; leaving it out leaves a "
            "class that was never seen. Give smaller groups, or none"
        )
