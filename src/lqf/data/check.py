"""Whether samples suffice to train a classifier on."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np

from lqf.data.labels import ONE_LABEL
from lqf.data.samples import Samples
from lqf.errors import LQFError
from lqf.utils.text import listed


def check_trainable(samples: Samples, *, strict: bool = False) -> list[str]:
    """Refuse samples from which a classifier cannot be trained: that takes two classes or more, each with an image.

    An image of weight zero counts as absent, as it does in the objective.

    Args:
        samples: the samples.
        strict: refuse also the former of what is returned otherwise.

    Returns:
        Sentences about classes that leave-one-out says nothing about (with one image, or images of one group alone,
        leaving it out leaves a class that was never seen), and about those whose names are nearly the same.

    Raises:
        LQFError: with the names of the classes or images at fault.
    """
    if len(samples) == 0:
        raise LQFError(f"{samples.name} has no image that can be used")
    unknown = [samples.ids[i] for i in np.flatnonzero(samples.labels < 0)]
    if unknown:
        raise LQFError(f"{samples.name} has no label for {listed(unknown)}; training needs one for every image")
    if len(samples.classes) < 2:
        raise LQFError(f"{samples.name} has one class ({listed(samples.classes)}); classification needs two or more")
    counts = np.bincount(samples.labels[samples.weights > 0], minlength=len(samples.classes))
    empty = [name for name, n in zip(samples.classes, counts, strict=True) if n == 0]
    if empty:
        weight = " of positive weight" if (samples.weights == 0).any() else ""
        raise LQFError(
            f"{samples.name} has classes without an image{weight}: {listed(empty)}; add images to them or leave these "
            "classes out"
        )
    sentences = _about_single(samples, counts)
    if sentences and strict:
        raise LQFError(sentences[0])
    return [*sentences, *_about_alike(samples.classes)]


def _about_alike(classes: Sequence[str]) -> list[str]:
    """Names that differ in capitals, spaces or forms of letters alone; single letters (`a`, `A`) do so on purpose."""
    alike: dict[str, list[str]] = {}
    for name in classes:
        alike.setdefault("".join(unicodedata.normalize("NFKC", name).casefold().split()), []).append(name)
    pairs = [" and ".join(f"`{name}`" for name in names) for key, names in alike.items() if names[1:] and key[1:]]
    if not pairs:
        return []
    more = f" (and {len(pairs) - 3} more)" if pairs[3:] else ""
    return [f"are these the same class? {', '.join(pairs[:3])}{more}; they are kept apart, as they are written"]


def _about_single(samples: Samples, counts: np.ndarray) -> list[str]:
    what = "image"
    if samples.groups is not None:
        seen = {(k, g) for k, g, w in zip(samples.labels, samples.groups, samples.weights, strict=True) if w > 0}
        counts, what = np.bincount([k for k, _ in seen], minlength=len(samples.classes)), "group"
    single = [name for name, n in zip(samples.classes, counts, strict=True) if n < 2]
    if not single:
        return []
    if len(single) == len(samples.classes):
        return [
            f"every class of {samples.name} has one {what}: nothing can be left out, so weight decay and probabilities "
            f"come from experience with other data, and the error on unseen images is not known{_about_numbers(single)}"
        ]
    numbers = _about_numbers(single) if len(single) > len(samples.classes) / 2 else ""
    return [
        f"classes with one {what}, whose error on unseen images is not known: {listed(single)}; more images of them "
        f"would help{numbers}"
    ]


def _about_numbers(classes: list[str]) -> str:
    """What to know where labels may have been amounts, which are not predicted."""
    if not all(name.removeprefix("-").isdecimal() for name in classes):
        return ""
    return f" (the labels are whole numbers, which are taken as names of classes: {ONE_LABEL}, no regression)"
