"""Images to predict: one or many, of any source, without labels."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image
from torch import Tensor

from lqf.data.decode import is_image
from lqf.data.formats import unreadable_kind
from lqf.data.read import check_kind, read_table
from lqf.data.readers.floats import is_float
from lqf.data.readers.folder import images_below
from lqf.data.readers.layout import Shape, picture_batch, tensor_batch
from lqf.data.readers.manifest import read_manifest
from lqf.data.samples import Samples
from lqf.data.sources import FileSource, Source
from lqf.errors import LQFError
from lqf.settings import PICTURES
from lqf.utils.progress import SILENT, Progress
from lqf.utils.regular import NotRegular, open_regular
from lqf.utils.text import clean


def load_unlabelled(
    source: Any,
    *,
    classes: Sequence[str] = (),
    tensors: str = PICTURES,
    fitted: Shape | None = None,
    each: bool = False,
    progress: Progress = SILENT,
) -> Samples:
    """Images to predict; every label is −1, also where the source has labels.

    The id of an image file is its path as it was given (for a folder, its path and the path inside it). An image that
    is named twice is read once. A named file that is not an image is refused; a damaged one is found by `open_images`.

    Args:
        source: one image, as a path, a PIL image, an array or a tensor; or many: a folder at any depth, a manifest (of
            which ``path`` suffices), a list of all of these, or what `load_samples` takes.
        classes: of the model.
        tensors: "pictures", or "normalized", as at the fit.
        fitted: the shape of one image of the fit (`Source.shape`), which decides whether an array is one image or many:
            see `picture_batch` and `tensor_batch`.
        each: every path of a list is an image to predict, also where it is named twice.
        progress: reports how far a data set is read.
    """
    if isinstance(source, np.ndarray | Tensor) and not _is_text(source):
        source = _batch(source, tensors, fitted)
    elif isinstance(source, Image.Image):
        source = [source]
    paths = _paths(source)
    if paths is not None:
        names, files = _files(paths, each)
        named = FileSource(_name(paths), files)
        check_kind(named, tensors)
        return _samples(names, named, classes)
    table = read_table(source, labelled=False, tensors=tensors, progress=progress)
    return _samples([*_distinct(table.ids)] if each else table.ids, table.source, classes)


def _batch(array: np.ndarray | Tensor, tensors: str, fitted: Shape | None) -> np.ndarray | Tensor:
    """Images along the first axis."""
    if tensors == PICTURES:
        return picture_batch(array, fitted)
    return tensor_batch(array, fitted) if is_float(array) else array


def _samples(ids: Sequence[str], source: Source, classes: Sequence[str]) -> Samples:
    n = len(ids)
    return Samples(tuple(ids), tuple(classes), np.full(n, -1), np.ones(n), None, source)


def _is_text(array: np.ndarray | Tensor) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "UOT"


def _paths(source: Any) -> list[Path] | None:
    """Paths, where the source is one or a list of them."""
    given = [source] if isinstance(source, str | os.PathLike) else source
    if isinstance(given, np.ndarray) and _is_text(given):
        given = given.tolist()
    if not isinstance(given, list | tuple) or not all(isinstance(p, str | os.PathLike) for p in given):
        return None
    if not given:
        raise LQFError("no image was given; name image files or folders")
    return [Path(p).expanduser() for p in given]


def _files(paths: Sequence[Path], each: bool) -> tuple[list[str], tuple[Path, ...]]:
    """Ids and files of all images that the paths name."""
    found = [file for path in paths for file in _named(path)]
    if not each:
        first: dict[str, tuple[str, Path]] = {}
        for name, file in found:
            first.setdefault(os.path.abspath(file), (name, file))
        found = list(first.values())
    return list(_distinct([name for name, _ in found])), tuple(file for _, file in found)


def _named(path: Path) -> list[tuple[str, Path]]:
    if path.is_dir():
        return [(clean(file), file) for file in images_below(path)]
    if path.suffix.lower() == ".csv" and path.is_file():
        table = read_manifest(path, labelled=False)
        assert isinstance(table.source, FileSource)
        return [(clean(file), file) for file in table.source.paths]
    return [(clean(path), _checked(path))]


def _checked(path: Path) -> Path:
    try:
        with open_regular(path) as file:
            good, missing = is_image(file), unreadable_kind(_start(file))
    except NotRegular as e:
        raise LQFError(f"`{path}` {e}; give image files or folders with images") from e
    except OSError as e:
        raise LQFError(f"`{path}` cannot be read: {e.strerror or e}") from e
    if not good:
        raise LQFError(f"`{path}` {missing or 'is not an image; give image files or folders with images'}")
    return path


def _start(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read(12)


def _distinct(names: Sequence[str]) -> Iterator[str]:
    """The names; a repeated one with a number behind it."""
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})"


def _name(paths: Sequence[Path]) -> str:
    return f"`{paths[0]}`" if len(paths) == 1 else f"the {len(paths)} paths"
