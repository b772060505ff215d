"""Samples that are added: their classes, ids and weights among those that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lqf.changes.samples.members import about
from lqf.changes.samples.outcome import Outcome
from lqf.data import Images, Samples, with_labels
from lqf.data.labels import class_array, encode
from lqf.data.sources import FileSource, TensorSource
from lqf.data.unread import join_images
from lqf.errors import LQFError
from lqf.fitting import Model, TrainingTable
from lqf.utils.text import against_the_fit, counted, listed


@dataclass(frozen=True)
class Addition:
    """What adding samples did.

    Attributes:
        added: number of samples that were added.
        n: number of training samples now.
        classes: names of the new classes.
        members: what became of the model, or of each member of a stack.
        seconds: that it took.
    """

    added: int
    n: int
    classes: tuple[str, ...]
    members: tuple[Outcome, ...]
    seconds: float

    @property
    def saved(self) -> int | None:
        """Products that the fit took and this did not; None where it is not known."""
        known = [m.saved for m in self.members if m.saved is not None]
        return sum(known) if known else None

    @property
    def about_point(self) -> str:
        """What new classes did to the linearisation point, where there is one; else empty."""
        linear = any(m.solver not in (None, "head") for m in self.members)
        return ", for which the linearisation point was made again at the same strengths" if linear else ""

    @property
    def sentence(self) -> str:
        """One line."""
        parts = [f"{counted(self.added, 'image')} added to {counted(self.n - self.added, 'image')}"]
        if self.classes:
            parts.append(f"new: {listed(self.classes)}{self.about_point}")
        if self.saved is not None:
            passes = sum(m.passes or 0 for m in self.members)
            parts.append(f"{counted(passes, 'product')}, {against_the_fit(self.saved)}")
        return "; ".join([*parts, *filter(None, [about(self.members)])])

    def __repr__(self) -> str:
        return f"Addition({self.sentence})"

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        members = [m.to_dict() for m in self.members]
        own = {"added": self.added, "n": self.n, "new_classes": list(self.classes), "members": members}
        own |= {"point": "made again" if self.classes and self.about_point else "kept"}
        return {**own, "saved_products": self.saved, "seconds": self.seconds}


def placed(model: Model, samples: Samples) -> Samples:
    """New samples with the classes of all, and with ids and weights among those of the model."""
    classes = merged(model.classes, samples.classes)
    number = np.array([classes.index(name) for name in samples.classes])
    unlabelled = [samples.ids[i] for i in np.flatnonzero(samples.labels < 0)]
    if unlabelled:
        raise LQFError(f"{samples.name} has no label for {listed(unlabelled)}; training needs one for every image")
    if not len(samples):
        raise LQFError(f"{samples.name} has no image that can be used; nothing was added")
    if isinstance(samples.source, TensorSource) and samples.source.shape != model.train.shape:
        raise LQFError(
            f"{samples.source.name} has images of shape {samples.source.shape}, and the model was fitted on images of "
            f"shape {model.train.shape}; nothing was added"
        )
    samples = replace(samples, classes=classes, labels=number[samples.labels])
    return _with_class_weights(model, _with_own_ids(model.train, samples))


def merged(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Names of all classes, in the order in which a fit on all samples has them; old ones keep theirs where there is
    no new one.
    """
    more = [name for name in new if name not in old]
    return encode(class_array([*old, *more]).tolist(), None)[0] if more else tuple(old)


def check_new(table: TrainingTable, images: Images, *, files: bool) -> None:
    """LQFError where a sample has the id of another one, or of a file the contents.

    Equal pixels of an array are let in: it has no names by which one would be given twice, and a copy is a weight of 2.
    """
    if files:
        _check_contents(table, images)
    known = dict(zip(table.ids, table.hashes, strict=True))
    both = [name for name in images.samples.ids if name in known]
    if not both:
        return
    hashes = dict(zip(images.samples.ids, images.hashes, strict=True))
    if all(known[name] == hashes[name] for name in both):
        raise LQFError(
            f"{counted(len(both), 'image')} of {images.samples.name} already in the training set: {listed(both)}; "
            "leave these out; nothing was added"
        )
    raise LQFError(
        f"{images.samples.name} has ids that images of the training set have, too: {listed(both)}; rename the files, "
        "or put them into a folder of another name; nothing was added"
    )


def _check_contents(table: TrainingTable, images: Images) -> None:
    """LQFError where files are in the training set under other names."""
    known = dict(zip(table.hashes, table.ids, strict=True))
    pairs = zip(images.samples.ids, images.hashes, strict=True)
    again = [(name, known[digest]) for name, digest in pairs if digest in known and known[digest] != name]
    if again:
        copies = "; ".join(f"`{name}` is `{other}`" for name, other in again[:2])
        more = f", and {len(again) - 2:,} more" if len(again) > 2 else ""
        raise LQFError(
            f"{counted(len(again), 'image')} of {images.samples.name} already in the training set under another name "
            f"({copies}{more}); leave these out; nothing was added"
        )


def relabelled(images: Images, classes: tuple[str, ...]) -> Images:
    """The same images with their labels numbered by other classes."""
    samples = images.samples
    if samples.classes == classes:
        return images
    number = np.array([classes.index(name) for name in samples.classes])
    return with_labels(images, number[samples.labels], classes)


def everyone(old: Images, new: Images) -> Images:
    """All images, by the classes of the new ones."""
    return join_images(relabelled(old, new.samples.classes), new)


def grown(table: TrainingTable, classes: tuple[str, ...], new: Images, source: str | None) -> TrainingTable:
    """The table with further samples behind its own.

    Args:
        table: so far, numbered by ``classes``.
        classes: as they were.
        new: with labels by the classes of all.
        source: where they are; None: in memory.
    """
    samples, places = new.samples, [table.source, *table.added]
    number = np.array([samples.classes.index(name) for name in classes])
    added = table.added if source in places else (*table.added, source)
    origin = np.full(len(samples), [table.source, *added].index(source))
    groups = None
    if table.groups is not None or samples.groups is not None:
        groups = (table.groups or table.ids) + (samples.groups or samples.ids)
    return replace(
        table,
        ids=table.ids + samples.ids,
        labels=np.concatenate([number[table.labels], samples.labels]),
        weights=np.concatenate([table.weights, samples.weights]),
        groups=groups,
        hashes=table.hashes + new.hashes,
        added=added,
        origin=np.concatenate([table.origins, origin]) if added else None,
    )


def _with_own_ids(table: TrainingTable, samples: Samples) -> Samples:
    """Images in memory are numbered, and go on from the last number."""
    if isinstance(samples.source, FileSource) or not any(name in table.ids for name in samples.ids):
        return samples
    numbers = [int(name) for name in table.ids if name.isdigit()]
    first = max(numbers, default=-1) + 1
    return replace(samples, ids=tuple(str(first + i) for i in range(len(samples))))


def _with_class_weights(model: Model, samples: Samples) -> Samples:
    """The weights of their classes, as the fit chose them; a new class counts as much as the others do together on
    average where these were balanced.
    """
    known = model.report.class_weights
    if known is None:
        return samples
    total = float(np.bincount(model.train.labels, model.train.weights).mean())
    balanced = model.settings.class_weight == "balanced"
    factors = np.ones(len(samples.classes))
    for k, name in enumerate(samples.classes):
        own = float(samples.weights[samples.labels == k].sum())
        if name in known:
            factors[k] = known[name]
        elif balanced and own:
            factors[k] = total / own
    return replace(samples, weights=samples.weights * factors[samples.labels])
