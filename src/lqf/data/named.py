"""Images that are named on the command line: files, folders, manifests; what cannot be read is found out later."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from lqf.data.readers.folder import images_below
from lqf.data.readers.manifest import read_list
from lqf.data.samples import Samples
from lqf.data.sources import FileSource
from lqf.errors import LQFError
from lqf.utils.text import clean


def name_images(paths: Sequence[str | os.PathLike[str]]) -> tuple[Samples, tuple[str, ...] | None]:
    """Images to predict, and the labels that manifests give them; None: there is no manifest with labels.

    A file that is missing or no image is named like the others, so that `open_images` can say what is wrong with it. An
    image that is named twice is read once.
    """
    if not paths:
        raise LQFError("no image was given; name image files, folders or manifests")
    found: dict[str, tuple[Path, str]] = {}
    for path, label in (one for given in paths for one in _named(Path(given).expanduser())):
        found.setdefault(os.path.abspath(path), (path, label))
    files, labels = zip(*found.values(), strict=True)
    name, n = f"`{paths[0]}`" if len(paths) == 1 else f"the {len(paths)} paths", len(files)
    samples = Samples(tuple(map(clean, files)), (), np.full(n, -1), np.ones(n), None, FileSource(name, files))
    return samples, labels if any(labels) else None


def _named(path: Path) -> Iterator[tuple[Path, str]]:
    if path.is_dir():
        yield from ((file, "") for file in images_below(path))
    elif path.suffix.lower() == ".csv":
        yield from read_list(path)
    else:
        yield path, ""
