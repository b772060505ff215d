"""Which reader reads a source: its table, before labels become numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from lqf.data.readers.arrays import array_source, items_source
from lqf.data.readers.dataset import read_dataset
from lqf.data.readers.files import files_table
from lqf.data.readers.folder import read_folder
from lqf.data.readers.frame import is_frame, read_frame
from lqf.data.readers.manifest import read_manifest
from lqf.data.samples import Samples
from lqf.data.sources import Source, TensorSource
from lqf.data.table import Table
from lqf.errors import LQFError
from lqf.settings import NORMALIZED, PICTURES
from lqf.utils.no_images import no_images
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import listed

KINDS = (
    "a folder CLASS/*.jpg, a .csv manifest, a data frame with path,label, a map-style data set, an array or tensor, or "
    "a list of image paths or pictures"
)


def read_table(
    source: Any,
    *,
    labelled: bool = True,
    tensors: str = PICTURES,
    strict: bool = False,
    progress: Progress = SILENT,
) -> Table:
    """The table of any source; see `load_samples`.

    Args:
        source: where the images are.
        labelled: False where labels are given elsewhere, or there are none.
        tensors: what floating-point arrays and tensors are; see `array_source`.
        strict: refuse what a folder has too much.
        progress: reports how far a data set is read, and what is left out.
    """
    table = _read(_plain(source), labelled, tensors, strict, progress)
    check_kind(table.source, tensors)
    return table


def check_kind(source: Source, tensors: str) -> None:
    """LQFError where pictures are given in place of normalised tensors, or the other way round."""
    given = NORMALIZED if isinstance(source, TensorSource) else PICTURES
    if given != tensors == NORMALIZED:
        raise LQFError(
            f"{source.name} has pictures, and tensors='normalized' says that the network's own inputs are given; leave "
            "it out (a fitted model takes what it was fitted on)"
        )
    if given != tensors:
        raise LQFError(
            f"{source.name} has normalised tensors, and pictures are expected; say tensors='normalized', or give pixels"
        )


def _plain(source: Any) -> Any:
    """Lists in place of arrays of texts, and arrays in place of what turns into them (a column of a data frame)."""
    known = (np.ndarray, Tensor, list, tuple, Image.Image, str, os.PathLike, Samples)
    if not isinstance(source, known) and hasattr(source, "__array__") and not is_frame(source):
        source = np.asarray(source)
    if isinstance(source, np.ndarray) and source.dtype.kind in "UOT" and source.ndim == 1:
        source = source.tolist()
    return source


def _read(source: Any, labelled: bool, tensors: str, strict: bool, progress: Progress) -> Table:
    if isinstance(source, Samples):
        return _again(source, labelled)
    if isinstance(source, str | os.PathLike):
        return _from_path(Path(source).expanduser(), labelled, strict, progress)
    if isinstance(source, DataLoader):
        raise LQFError("a DataLoader was given, which shuffles and batches; give its data set, `loader.dataset`")
    if isinstance(source, IterableDataset):
        raise LQFError("an IterableDataset was given; images are read by number here, so give a map-style Dataset")
    if isinstance(source, np.ndarray | Tensor):
        return _numbered(array_source(source, tensors))
    if isinstance(source, list | tuple):
        return _from_list(source, labelled, tensors, progress)
    if is_frame(source):
        return read_frame(source, labelled=labelled, tensors=tensors, progress=progress)
    if hasattr(source, "__getitem__") and not isinstance(source, Mapping | set | bytes | Image.Image):
        return read_dataset(source, labelled=labelled, tensors=tensors, progress=progress)
    if isinstance(source, Mapping) and source:
        raise LQFError(f"a {type(source).__name__} of {listed(list(source), 3)} was given; expected one of its parts")
    raise LQFError(f"a {type(source).__name__} was given; expected {KINDS}")


def _from_path(path: Path, labelled: bool, strict: bool, progress: Progress) -> Table:
    if path.is_dir():
        return read_folder(path, strict=strict, progress=progress)
    if path.suffix.lower() == ".csv" and path.is_file():
        return read_manifest(path, labelled=labelled)
    raise no_images(path)


def _from_list(items: Sequence[Any], labelled: bool, tensors: str, progress: Progress) -> Table:
    if not items:
        raise LQFError(f"an empty list was given; expected {KINDS}")
    if all(isinstance(x, str | os.PathLike) for x in items):
        return files_table(items)
    if all(isinstance(x, Image.Image | np.ndarray | Tensor) for x in items):
        get = items.__getitem__
        return _numbered(items_source("the list of images", len(items), get, tensors=tensors, progress=progress))
    if all(isinstance(x, tuple) and len(x) == 2 for x in items) or all(isinstance(x, Mapping) for x in items):
        return read_dataset(items, labelled=labelled, tensors=tensors, progress=progress)
    kinds = sorted({type(x).__name__ for x in items})
    raise LQFError(f"a list of {', '.join(kinds)} was given; expected all paths, or all images")


def _numbered(source: Source) -> Table:
    return Table(source, [str(i) for i in range(len(source))])


def _again(samples: Samples, labelled: bool) -> Table:
    names = None if (samples.labels < 0).any() else [samples.classes[k] for k in samples.labels]
    table = Table(samples.source, samples.ids, names, samples.weights, samples.groups)
    return table if labelled else replace(table, labels=None)
