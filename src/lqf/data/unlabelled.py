"""Images to predict: files and folders, without labels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lqf.data.decode import is_image
from lqf.data.readers.folder import images_below
from lqf.data.samples import Samples
from lqf.data.sources import FileSource
from lqf.errors import LQFError
from lqf.utils.text import clean


def load_unlabelled(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, classes: Sequence[str] = ()
) -> Samples:
    """Images to predict: files, and folders with all images below them; every label is −1.

    The id of an image is its path as it was given (for a folder, its path and the path inside it). An image that is
    named twice is read once. A named file that is not an image is refused; a damaged one is found by `open_images`.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise LQFError("no image was given; name image files or folders")
    found: dict[str, Path] = {}
    for path in (Path(p).expanduser() for p in given):
        for file in images_below(path) if path.is_dir() else [_named_image(path)]:
            found.setdefault(os.path.abspath(file), file)
    files, n = tuple(found.values()), len(found)
    name = f"`{given[0]}`" if len(given) == 1 else f"the {len(given)} paths"
    return Samples(tuple(map(clean, files)), tuple(classes), np.full(n, -1), np.ones(n), None, FileSource(name, files))


def _named_image(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            good = is_image(file)
    except OSError as e:
        raise LQFError(f"`{path}` cannot be read: {e.strerror or e}") from e
    if not good:
        raise LQFError(f"`{path}` is not an image; give image files or folders with images")
    return path
