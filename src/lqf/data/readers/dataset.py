"""Map-style data sets, torch's and those of Hugging Face: every item is read once, image and label together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Subset

from lqf.data.labels import plain_label
from lqf.data.readers.arrays import items_source
from lqf.data.table import Label, Table
from lqf.errors import LQFError
from lqf.settings import PICTURES
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import clean, listed

IMAGE_KEYS = ("image", "img", "pixel_values")
LABEL_KEYS = ("label", "labels", "fine_label")
"""What items that are dicts call their image and their label."""


def read_dataset(dataset: Any, *, labelled: bool = True, tensors: str = PICTURES, progress: Progress = SILENT) -> Table:
    """The table of a data set of (image, label), or of dicts with an image and a label.

    It should give the same image each time (no random transform): images that do not fit in memory are read again.
    Whole numbers become class names where the data set has them: in ``classes``, as torchvision's do, or in
    ``features["label"].names``, as those of Hugging Face do.

    Args:
        dataset: has a length and items by number. Images are PIL, or arrays or tensors as in `array_source`.
        labelled: False where labels are given elsewhere; an item may then be the image alone.
        tensors: what floating-point images are, see `array_source`.
        progress: reports how far the reading is.
    """
    n = _length(dataset)
    labels: dict[int, Label] = {}

    def get(i: int) -> Any:
        image, label = _split(_item(dataset, i), i, labelled)
        if labelled:
            labels.setdefault(i, plain_label(label, i))
        return image

    source = items_source("the data set", n, get, tensors=tensors, again=True, progress=progress)
    found = _named(dataset, [labels[i] for i in range(n)]) if labelled else None
    return Table(source, [str(i) for i in range(n)], found)


def _length(dataset: Any) -> int:
    try:
        n = len(dataset)
    except TypeError as e:
        raise LQFError("the data set has no length; images are read by number, so give a map-style Dataset") from e
    if n == 0:
        raise LQFError("the data set is empty")
    return n


def _item(dataset: Any, i: int) -> Any:
    try:
        return dataset[i]
    except Exception as e:  # the user's code may raise anything; the item's number is what helps
        raise LQFError(f"item {i} of the data set cannot be read: {type(e).__name__}: {e}") from e


def _split(item: Any, i: int, labelled: bool) -> tuple[Any, Any]:
    """Image and label of an item."""
    if isinstance(item, Mapping):
        image, label = _key(item, IMAGE_KEYS), _key(item, LABEL_KEYS)
        if image is None or (labelled and label is None):
            what = f"no image ({', '.join(IMAGE_KEYS)})" if image is None else f"no label ({', '.join(LABEL_KEYS)})"
            raise LQFError(f"item {i} of the data set has {what}; it has {listed([str(k) for k in item])}")
        return item[image], item[label] if label is not None else None
    pair = isinstance(item, tuple | list) and len(item) >= 2
    if labelled and not pair:
        raise LQFError(
            f"item {i} of the data set is a {type(item).__name__}; expected (image, label), or a dict with both"
        )
    return (item[0], item[1] if pair else None) if isinstance(item, tuple | list) and item else (item, None)


def _key(item: Mapping[Any, Any], known: Sequence[str]) -> str | None:
    return next((key for key in known if key in item), None)


def _named(dataset: Any, labels: list[Label]) -> list[Label]:
    """Labels by the names of their classes, where the data set has names."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    names = _class_names(dataset)
    if not names or not all(isinstance(y, int) and 0 <= y < len(names) for y in labels):
        return labels
    return [clean(names[y]) for y in labels if isinstance(y, int)]


def _class_names(dataset: Any) -> Sequence[str]:
    features = getattr(dataset, "features", None)
    features = features if isinstance(features, Mapping) else {}
    key = _key(features, LABEL_KEYS)
    names = getattr(dataset, "classes", None) if key is None else getattr(features[key], "names", None)
    if isinstance(names, np.ndarray | Tensor) or not isinstance(names, Sequence):
        return ()
    return names if all(isinstance(name, str) for name in names) else ()
