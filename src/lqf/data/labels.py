"""Labels in any form to class indices, and the choice of a few images per class."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from torch import Tensor

from lqf.data.table import Label
from lqf.errors import LQFError
from lqf.utils import naming
from lqf.utils.text import clean, counted, listed

ONE_LABEL = "this is classification with one label an image only"


def plain_labels(labels: Iterable[object], what: str = "label") -> list[Label]:
    """Labels from a list, a numpy or torch array or a pandas column, as Python ints and strings."""
    if isinstance(labels, str | bytes):
        raise LQFError(f"{what}s are a list with one {what} per image, not the text {labels!r}")
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu().numpy()
    elif hasattr(labels, "__array__"):
        labels = np.asarray(labels)  # a column of any library
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    return [plain_label(value, i, what) for i, value in enumerate(values)]


def plain_label(value: object, i: int | None = None, what: str = "label") -> Label:
    """One label; ``i`` is its position, for the sentence."""
    if isinstance(value, Tensor | np.ndarray | np.generic) and np.ndim(value) == 0:
        value = value.item()
    where = f"the {what}" if i is None else f"{what} number {i}"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return value
    if isinstance(value, str) and not (what == "label" and _several(value)):
        if "\0" in value:  # which arrays of names lose at their ends
            raise LQFError(f"{where} is {value!r}; names have no NUL characters")
        return clean(value)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    kind = f"a {what} is a whole number or a name, one per image"
    raise LQFError(f"{where} is {value!r}; {f'{kind}: {ONE_LABEL}' if what == 'label' else kind}")


def _several(text: str) -> bool:
    """Whether it lists labels: `cat;dog`, `cat|dog`."""
    parts = re.split(r"[;|]", text)
    return len(parts) > 1 and all(part.strip() for part in parts)


def check_no_amounts(labels: Sequence[Label], where: str) -> None:
    """LQFError where the labels are numbers to be predicted: fractions, of which nearly every one is another."""
    amounts = [y for y in labels if isinstance(y, str) and re.fullmatch(r"[-+]?\d*[.,]\d+(e[-+]?\d+)?", y.lower())]
    if len(amounts) > len(labels) / 2 and len(set(labels)) > len(labels) / 2 > 1:
        raise LQFError(
            f"{where} has {counted(len(set(labels)), 'different number')} as labels of "
            f"{counted(len(labels), 'image')} ({listed(amounts, 3)}); {ONE_LABEL}, no regression: give every image the "
            "name of a class"
        )


def encode(
    labels: Sequence[Label], classes: Iterable[object] | None, where: str = "the data", *, strict: bool = True
) -> tuple[tuple[str, ...], np.ndarray]:
    """Class names and the (N,) index of each label.

    Without ``classes`` these are the labels found, sorted: whole numbers by value (as `numpy.unique` does), names by
    their letters. With ``classes`` their order is kept. Any other label is refused; where that is not ``strict``, only
    if there is no known one, and its index is −1.
    """
    if classes is None:
        names = _sorted_names(labels)
    else:
        names = tuple(str(c) for c in plain_labels(classes, "class"))
        _check_known(labels, names, where, strict)
    place = {name: k for k, name in enumerate(names)}
    return names, np.array([place.get(str(y), -1) for y in labels], dtype=np.int64)


def _sorted_names(labels: Sequence[Label]) -> tuple[str, ...]:
    numbers = [y for y in set(labels) if isinstance(y, int)]
    if len(numbers) == len(set(labels)):
        return tuple(str(y) for y in sorted(numbers))
    return tuple(sorted({str(y) for y in labels}))


def _check_known(labels: Sequence[Label], names: tuple[str, ...], where: str, strict: bool) -> None:
    known = set(names)
    if len(known) != len(names):
        raise LQFError(f"the classes {listed(names)} name one of them twice")
    unknown = unknown_classes(labels, known)
    if unknown and (strict or sum(unknown.values()) == len(labels)):
        raise LQFError(f"{where} has classes the model does not know: {tally(unknown)}; it knows {listed(names, 20)}")


def unknown_classes(labels: Sequence[Label], known: Collection[str]) -> Counter[str]:
    """Labels that are no class of the model, with their numbers of images."""
    return Counter(str(y) for y in labels if str(y) not in known)


def tally(classes: Counter[str]) -> str:
    """`rose` (3 images), …"""
    return ", ".join(f"`{name}` ({counted(n, 'image')})" for name, n in sorted(classes.items()))


def limit_per_class(ids: Sequence[str], labels: np.ndarray, limit: int, seed: int) -> np.ndarray:
    """Positions, in their old order, of ``limit`` images of each class (all of a class that has fewer).

    The images are ranked by sha256(seed, id): the choice depends on nothing but the ids and the seed, the choice for a
    smaller limit is part of that for a larger one, and a new image displaces at most one other.
    """
    if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 1:
        raise LQFError(f"{naming.name('limit_per_class')} is {limit!r}; give a whole number of images, 1 or more")
    if len(labels) and labels.min() < 0:
        raise LQFError(f"{naming.name('limit_per_class')} needs a label for every image")
    rank = [hashlib.sha256(f"{seed}/{i}".encode()).digest() for i in ids]
    chosen: list[int] = []
    for k in np.unique(labels):
        rows = np.flatnonzero(labels == k).tolist()
        chosen += sorted(rows, key=lambda i: rank[i])[:limit]
    return np.array(sorted(chosen), dtype=np.int64)


def class_array(classes: Sequence[str]) -> np.ndarray:
    """Class names as labels are given: whole numbers where all of them are written as such (`7`, not `07`)."""
    if all(re.fullmatch("0|-?[1-9][0-9]*", name) for name in classes):
        return np.array([int(name) for name in classes])
    return np.array(classes)
