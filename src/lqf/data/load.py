"""One door for every kind of labelled source: `load_samples`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from lqf.data.has_labels import column_of_labels
from lqf.data.labels import check_no_amounts, encode, plain_labels, tally, unknown_classes
from lqf.data.labels import limit_per_class as limited
from lqf.data.read import read_table
from lqf.data.readers.layout import as_list
from lqf.data.samples import Samples
from lqf.data.table import Label, Table
from lqf.errors import LQFError
from lqf.settings import PICTURES
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import counted, listed


def load_samples(
    source: Any,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    ids: Sequence[str] | None = None,
    classes: Sequence[object] | np.ndarray | None = None,
    limit_per_class: int | None = None,
    seed: int = 0,
    tensors: str = PICTURES,
    strict: bool = False,
    progress: Progress = SILENT,
) -> Samples:
    """The table of samples of any source.

    Floating-point images are pictures with pixels of 0 to 1 or of 0 to 255, told apart by the brightest pixel of all;
    other values are refused, unless ``tensors`` says that they are normalised for the network already. Arrays have
    their images along the first axis: (N, H, W, C), (N, C, H, W) with C = 1, 3 or 4, or (N, H, W).

    Args:
        source: A folder ``CLASS/…/*.jpg``; a ``.csv`` manifest; a data frame with the columns ``path`` or ``image``,
            ``label`` and optionally ``weight`` and ``group``; a map-style data set of (image, label) or of dicts with
            both; images in numpy or torch; a list of image paths, PIL images, arrays, pairs or dicts; or `Samples`.
        labels: one per image, whole numbers or names, for sources that have none of their own.
        sample_weight: one per image, not negative; default 1.
        groups: one per image; images of one group leave together in leave-one-out.
        ids: one per image, for arrays and lists; default "0", "1", … or the paths.
        classes: the classes of a trained model, in its order. Images of other classes are left out with a warning, or
            refused where the labels were given.
        limit_per_class: use at most so many images of each class, chosen by ``seed``.
        seed: chooses the images of ``limit_per_class``.
        tensors: "pictures", or "normalized": floating-point images are the network's inputs and go in unchanged.
        strict: refuse what is left out with a warning otherwise.
        progress: reports how far a data set is read and what is left out.

    Returns:
        The samples; `check_trainable` says whether they suffice to train on. Without labels, all are −1.

    Raises:
        LQFError: with a sentence that names what cannot be used.
    """
    given = None if labels is None else plain_labels(labels)
    if given is not None and len(given) == 1:
        source = as_list(source)
    table = read_table(source, labelled=labels is None, tensors=tensors, strict=strict, progress=progress)
    if ids is not None and isinstance(source, str | os.PathLike | Samples):
        raise LQFError(f"{table.source.name} has ids of its own (the paths of its images); leave out `ids`")
    if given is not None and column_of_labels(source):
        raise _twice(table, "labels")
    table = replace(
        table,
        ids=table.ids if ids is None else [*map(str, ids)],
        labels=_column(table, "labels", given, table.labels),
        weights=_column(table, "weights", _numbers(sample_weight), table.weights),
        groups=_column(table, "groups", None if groups is None else plain_labels(groups, "group"), table.groups),
    )
    if classes is None and isinstance(source, Samples):
        classes = source.classes
    samples = _samples(table, classes, strict or given is not None, progress)
    if limit_per_class is None:
        return samples
    return samples.select(limited(samples.ids, samples.labels, limit_per_class, seed))


def _samples(table: Table, classes: Any, strict: bool, progress: Progress) -> Samples:
    """Labels as indices; images of unknown classes are left out, where that is not ``strict``."""
    n, where, labels = len(table.source), table.source.name, table.labels or []
    check_no_amounts(labels, where)
    names, index = encode(labels, classes, where, strict=strict)
    samples = Samples(
        ids=tuple(table.ids),
        classes=names,
        labels=np.full(n, -1) if table.labels is None else index,
        weights=np.ones(n) if table.weights is None else np.asarray(table.weights),
        groups=None if table.groups is None else tuple(map(str, table.groups)),
        source=table.source,
    )
    if not (index < 0).any():
        return samples
    _warn(labels, names, where, progress)
    return samples.select(index >= 0)


def _warn(labels: Sequence[Label], names: tuple[str, ...], where: str, progress: Progress) -> None:
    """Say which images are left out; where nothing is reported, as a Python warning: the result depends on it."""
    unknown = unknown_classes(labels, names)
    sentence = (
        f"{where}: left out {counted(sum(unknown.values()), 'image')} of classes the model does not know: "
        f"{tally(unknown)}; it knows {listed(names, 20)}"
    )
    if progress is SILENT:
        warnings.warn(sentence, stacklevel=4)
    else:
        progress.say(sentence)


def _column(table: Table, what: str, given: Any, own: Any) -> Any:
    """The column that was given, or the source's own; both would leave open which one counts."""
    if given is None:
        return own
    if own is not None:
        raise _twice(table, what)
    if len(given) != len(table.ids):
        raise LQFError(f"{table.source.name} has {counted(len(table.ids), 'image')} but {len(given)} {what} were given")
    return given


def _twice(table: Table, what: str) -> LQFError:
    return LQFError(f"{table.source.name} has {what} of its own; leave out the {what} given with it")


def _numbers(weights: Any) -> np.ndarray | None:
    if weights is None:
        return None
    try:
        array = np.asarray(weights.detach().cpu() if isinstance(weights, Tensor) else weights, dtype=np.float64)
    except (TypeError, ValueError) as e:
        raise LQFError(f"sample weights must be numbers: {e}") from e
    if array.ndim != 1:
        raise LQFError(f"sample weights have shape {array.shape}; give one number per image")
    return array
