"""Data frames (pandas, polars): ``path`` or ``image``, ``label``, optionally ``weight`` and ``group``."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

from lqf.data.labels import plain_label
from lqf.data.readers.arrays import items_source
from lqf.data.readers.columns import COLUMNS, blank, header, weight_of
from lqf.data.readers.files import files_table
from lqf.data.table import Table
from lqf.errors import LQFError
from lqf.settings import PICTURES
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import clean

_IMAGE = "image"
_NAME = "the data frame"


def is_frame(source: object) -> bool:
    """Whether something has named columns, as a pandas.DataFrame has."""
    return hasattr(source, "columns") and hasattr(source, "shape") and hasattr(source, "__getitem__")


def read_frame(frame: Any, *, labelled: bool = True, tensors: str = PICTURES, progress: Progress = SILENT) -> Table:
    """The table of a data frame; other columns are ignored.

    Args:
        frame: has a column ``path``, relative to the working directory, or ``image``, of paths or of pictures as in a
            list.
        labelled: False where labels are not needed, or given elsewhere.
        tensors: what floating-point images are, see `array_source`.
        progress: reports how far the reading is.
    """
    column = _columns(frame, labelled)
    table = _images(column.get(_IMAGE) or column["path"], tensors, progress)
    return Table(
        table.source,
        table.ids,
        labels=[plain_label(y, i) for i, y in enumerate(column["label"])] if labelled else None,
        weights=_weights(column.get("weight")),
        groups=_groups(column.get("group"), table.ids),
    )


def _columns(frame: Any, labelled: bool) -> dict[str, list[Any]]:
    """Those that are used, by their names in small letters; images and labels have no blank cell."""
    given = list(frame.columns)
    by_image = _IMAGE in [str(name).strip().lower() for name in given]
    needed = (_IMAGE if by_image else "path", *(["label"] if labelled else []))
    names = header(_NAME, given, needed)
    cells = {name: list(frame[given[names.index(name)]]) for name in (_IMAGE, *COLUMNS) if name in names}
    if not cells[needed[0]]:
        raise LQFError(f"{_NAME} is empty; expected rows with {','.join(COLUMNS)}")
    for name in needed:
        _check_filled(cells[name], name)
    return cells


def _images(cells: Sequence[Any], tensors: str, progress: Progress) -> Table:
    """Paths, or pictures."""
    if all(isinstance(cell, str | PathLike) for cell in cells):
        return files_table(cells, _NAME)
    source = items_source(_NAME, len(cells), cells.__getitem__, tensors=tensors, progress=progress)
    return Table(source, [str(i) for i in range(len(cells))])


def _check_filled(cells: Sequence[object], name: str) -> None:
    empty = [i for i, value in enumerate(cells) if blank(value)]
    if empty:
        raise LQFError(f"{_NAME} has no {name} in row {empty[0]} ({len(empty)} in all); fill it in or drop the row")


def _weights(cells: list[Any] | None) -> np.ndarray | None:
    if cells is None:
        return None
    weights = [weight_of(value) for value in cells]
    for i, weight in enumerate(weights):
        if weight is None:
            raise LQFError(f"{_NAME} has the weight {cells[i]} in row {i}; it must be a finite number from 0 up")
    return np.array(weights, dtype=np.float64)


def _groups(cells: list[Any] | None, ids: Sequence[str]) -> list[str] | None:
    """A blank group is the image alone."""
    if cells is None:
        return None
    return [id if blank(value) else clean(str(value)) for id, value in zip(ids, cells, strict=True)]
