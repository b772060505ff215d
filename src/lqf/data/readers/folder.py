"""Folders of images: ``CLASS/…/*.jpg`` trees with labels, and plain folders without."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lqf.data.formats import extensions, installable
from lqf.data.readers.parts import check_no_parts
from lqf.data.sources import FileSource
from lqf.data.table import Table
from lqf.errors import LQFError
from lqf.utils import naming
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import clean, counted, listed


def read_folder(root: Path, *, strict: bool = False, progress: Progress = SILENT) -> Table:
    """An ImageFolder tree: the folders directly inside ``root`` are the classes, at any depth below lie their images.

    Hidden files and folders are ignored. Symbolic links are followed, once around a loop. Images outside a class
    folder, class folders without an image and files with other extensions are left out, and ``progress`` says so, so
    that nothing is lost silently.

    Args:
        root: the folder.
        strict: refuse the first two instead.
        progress: where it is said.
    """
    folders = sorted(e.name for e in _entries(root) if _is_folder(e))
    check_no_parts(root, [name for name in folders if any(_is_folder(e) for e in _entries(root / name))], folders)
    files, other = _images(root)
    inside = [path for path in files if path.parent != root]
    if not inside:
        raise LQFError(_without_classes(root, files, other))
    relative = [path.relative_to(root) for path in inside]
    _tell_alike(root, {path.parts[0] for path in relative}, strict, progress)
    full = {path.parts[0] for path in relative}
    empty = [name for name in folders if name not in full]
    _tell(root, sorted(path.name for path in files if path.parent == root), empty, strict, progress)
    if other:
        progress.say(f"`{root}`: not read, by extension: {_tally(other)}{_hint(other)}")
    return Table(
        FileSource(f"`{root}`", tuple(inside)),
        ids=[clean(path) for path in relative],
        labels=[clean(path.parts[0]) for path in relative],
    )


def images_below(root: Path) -> list[Path]:
    """All image files in ``root``, at any depth, in a stable order."""
    files, other = _images(root)
    if not files:
        raise LQFError(f"`{root}` has no image ({_read_are()}){_hint(other)}")
    return files


def _images(root: Path) -> tuple[list[Path], Counter[str]]:
    """Image files at any depth in a stable order, and how many files have other extensions."""
    known, files, other = extensions(), [], Counter[str]()
    for path in _walk(root):
        if path.suffix.lower() in known:
            files.append(path)
        else:
            other[path.suffix.lower() or path.name] += 1
    return sorted(files, key=lambda path: path.relative_to(root).parts), other


def _without_classes(root: Path, files: list[Path], other: Counter[str]) -> str:
    if files:
        return (
            f"`{root}` has {counted(len(files), 'image')} outside any class folder "
            f"({listed([path.name for path in files], 5)}) and none inside one; move each into a folder with the name "
            "of its class"
        )
    found = f"found: {_tally(other)}; " if other else "it is empty; "
    return f"`{root}` has no image: {found}expected CLASS/*.jpg below it ({_read_are()}){_hint(other)}"


def _tell(root: Path, loose: list[str], empty: list[str], strict: bool, progress: Progress) -> None:
    faults = []
    if loose:
        faults.append(f"{counted(len(loose), 'image')} outside any class folder ({listed(loose, 5)})")
    if empty:
        names = listed([clean(name) for name in empty], 5)
        faults.append(f"{counted(len(empty), 'class folder')} without an image ({names})")
    if faults and strict:
        raise LQFError(
            f"`{root}` has {' and '.join(faults)}; move or remove them, or leave out {naming.name('strict')}"
        )
    for fault in faults:
        progress.say(f"`{root}`: left out {fault}")


def _tell_alike(root: Path, folders: set[str], strict: bool, progress: Progress) -> None:
    """Folders of one name whose letters are stored in two ways (as Linux and as macOS do) are one class."""
    alike: dict[str, list[str]] = {}
    for name in sorted(folders):
        alike.setdefault(clean(name), []).append(name)
    for name, several in alike.items():
        if len(several) < 2:
            continue
        what = f"`{root}` has {len(several)} folders `{name}`, whose letters are stored differently (composed and not)"
        files = Counter(clean(f) for folder in several for f in os.listdir(root / folder))
        if strict or max(files.values()) > 1:
            raise LQFError(f"{what}; move their images into one of them, under names of their own, or rename one")
        progress.say(f"{what}: they are read as one class")


def _walk(folder: Path, above: tuple[tuple[int, int], ...] = ()) -> Iterator[Path]:
    here = os.stat(folder)
    if (here.st_dev, here.st_ino) in above:  # a symbolic link to a folder we are in
        return
    above = (*above, (here.st_dev, here.st_ino))
    for entry in _entries(folder):
        if _is_folder(entry):
            yield from _walk(folder / entry.name, above)
        else:  # a link to nothing, a pipe or a device is named later, as an image that cannot be read
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


def _hint(other: Counter[str]) -> str:
    """How to have some of the other files read."""
    found = {extension: command for extension in sorted(other) if (command := installable(extension))}
    return "".join(f"; to have {extension} read, run {command}" for extension, command in found.items())


def _read_are() -> str:
    return f"extensions that are read: {' '.join(e[1:] for e in extensions())}"
