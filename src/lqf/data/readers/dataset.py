"""Torch data sets: every item is read once, its image and its label together."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset, Subset

from lqf.data.labels import plain_label
from lqf.data.readers.arrays import items_source
from lqf.data.table import Label, Table
from lqf.errors import LQFError
from lqf.utils.progress import SILENT, Progress


def read_dataset(dataset: Dataset[Any], *, labelled: bool = True, progress: Progress = SILENT) -> Table:
    """The table of a map-style data set of (image, label).

    It should give the same image each time (no random transform): images that do not fit in memory are read again.
    Whole numbers become class names where the data set has them in ``classes``, as torchvision's do.

    Args:
        dataset: Images are PIL, uint8 arrays or tensors, or floating-point tensors for the network.
        labelled: False where labels are given elsewhere; an item may then be the image alone.
        progress: Reports how far the reading is.
    """
    n = _length(dataset)
    labels: dict[int, Label] = {}

    def get(i: int) -> Any:
        item = _item(dataset, i)
        pair = isinstance(item, tuple | list) and len(item) >= 2
        if labelled and not pair:
            raise LQFError(f"item {i} of the data set is a {type(item).__name__}; expected (image, label)")
        if labelled:
            labels.setdefault(i, plain_label(item[1], i))
        return item[0] if isinstance(item, tuple | list) else item

    source = items_source("the data set", n, get, again=True, progress=progress)
    found = _named(dataset, [labels[i] for i in range(n)]) if labelled else None
    return Table(source, [str(i) for i in range(n)], found)


def _length(dataset: Dataset[Any]) -> int:
    try:
        n = len(dataset)  # type: ignore[arg-type]
    except TypeError as e:
        raise LQFError("the data set has no length; images are read by number, so give a map-style Dataset") from e
    if n == 0:
        raise LQFError("the data set is empty")
    return n


def _item(dataset: Dataset[Any], i: int) -> Any:
    try:
        return dataset[i]
    except Exception as e:  # the user's code may raise anything; the item's number is what helps
        raise LQFError(f"item {i} of the data set cannot be read: {type(e).__name__}: {e}") from e


def _named(dataset: Dataset[Any], labels: list[Label]) -> list[Label]:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    if isinstance(names, np.ndarray | Tensor) or not names or not all(isinstance(name, str) for name in names):
        return labels
    if not all(isinstance(y, int) and 0 <= y < len(names) for y in labels):
        return labels
    return [plain_label(names[y], i) for i, y in enumerate(labels) if isinstance(y, int)]
