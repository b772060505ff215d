"""Whether samples suffice to train a classifier on."""

from __future__ import annotations

import numpy as np

from lqf.data.samples import Samples
from lqf.data.text import counted, listed
from lqf.errors import LQFError


def check_trainable(samples: Samples) -> None:
    """Refuse samples from which a classifier cannot be trained and checked by leave-one-out.

    That takes two classes or more, each with two images or more: with one, leaving it out leaves a class that was never
    seen. An image of weight zero counts as absent, as it does in the objective.

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
