"""Folders of images: ``CLASS/…/*.jpg`` trees with labels, and plain folders without."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lqf.data.sources import FileSource
from lqf.data.table import Table
from lqf.errors import LQFError
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import clean, counted, listed

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")


def read_folder(root: Path, progress: Progress = SILENT) -> Table:
    """An ImageFolder tree: the folders directly inside ``root`` are the classes, at any depth below lie their images.

    Hidden files and folders are ignored. Symbolic links are followed, once around a loop. A class folder without images
    still is a class. Files with other extensions are not read; ``progress`` reports how many, so that nothing is lost
    silently.
    """
    files: list[Path] = []
    other: Counter[str] = Counter()
    for path in _walk(root):
        if path.suffix.lower() in EXTENSIONS:
            files.append(path)
        else:
            other[path.suffix.lower() or path.name] += 1
    _check_tree(root, files, other)
    if other:
        progress.say(f"`{root}`: not read, by extension: {_tally(other)}")
    files.sort(key=lambda path: path.relative_to(root).parts)
    inside = [path.relative_to(root) for path in files]
    return Table(
        FileSource(f"`{root}`", tuple(files)),
        ids=[clean(path) for path in inside],
        labels=[clean(path.parts[0]) for path in inside],
        class_names=tuple(sorted({clean(e.name) for e in _entries(root) if _is_folder(e)})),
    )


def images_below(root: Path) -> list[Path]:
    """All image files in ``root``, at any depth, in a stable order."""
    files = [path for path in _walk(root) if path.suffix.lower() in EXTENSIONS]
    if not files:
        raise LQFError(f"`{root}` has no image ({_read_are()})")
    return sorted(files, key=lambda path: path.relative_to(root).parts)


def _check_tree(root: Path, files: list[Path], other: Counter[str]) -> None:
    if not files:
        found = f"found: {_tally(other)}; " if other else "it is empty; "
        raise LQFError(f"`{root}` has no image: {found}expected CLASS/*.jpg below it ({_read_are()})")
    loose = sorted(path.name for path in files if path.parent == root)
    if loose:
        raise LQFError(
            f"`{root}` has {counted(len(loose), 'image')} outside any class folder ({listed(loose, 5)}); "
            "move each into a folder with the name of its class"
        )


def _walk(folder: Path, above: tuple[tuple[int, int], ...] = ()) -> Iterator[Path]:
    here = os.stat(folder)
    if (here.st_dev, here.st_ino) in above:  # a symbolic link to a folder we are in
        return
    above = (*above, (here.st_dev, here.st_ino))
    for entry in _entries(folder):
        if _is_folder(entry):
            yield from _walk(folder / entry.name, above)
        elif entry.is_symlink() or entry.is_file():  # a link to nothing is listed later, as an image that is missing
            yield folder / entry.name


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [e for e in entries if not e.name.startswith(".") and e.name != "__MACOSX"]
    except OSError as e:
        raise LQFError(f"the folder `{folder}` cannot be listed: {e.strerror or e}") from e


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself, or where we may not look
        return False


def _tally(other: Counter[str]) -> str:
    return ", ".join(f"{name} ({n})" for name, n in other.most_common(8))


def _read_are() -> str:
    return f"extensions that are read: {' '.join(e[1:] for e in EXTENSIONS)}"
