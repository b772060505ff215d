"""Hidden folders beside a result, in which it is written before it takes its place; and what kills leave of them.

`.NAME.new.XXXXXXXX` belongs to the process that holds a lock on it. The kernel ends the lock with the process, so a
room without one was left by a kill: `recover` puts back what stood in its way, if the place is empty, and removes the
rest.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lqf.errors import LQFError

if sys.platform != "win32":  # there nobody can tell a room in use from one that was left
    import fcntl

NEW, OLD = "new", "old"
"""In a room: what is being written, and what stood in its place, while that is changing."""
_EARLIER = "model"
"""What `OLD` was called in the folders `.NAME.old.XXXXXXXX` of earlier versions."""


@contextmanager
def room(path: Path) -> Iterator[Path]:
    """An empty hidden folder beside ``path``, gone when the block ends; those that kills have left go before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    recover(path)
    folder, lock = _locked_room(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def behind_links(path: Path) -> Path:
    """What is replaced: where ``path`` is a link, the file or folder that it names, which may lie on another disk."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def check_place(path: Path) -> None:
    """Refuse, before any work is done, a place where no folder can be made."""
    above = next(folder for folder in (path.absolute().parent, *path.absolute().parents) if folder.exists())
    try:
        os.rmdir(tempfile.mkdtemp(prefix=f".{path.name}.{NEW}.", dir=above))
    except OSError as error:
        raise LQFError(
            f"`{path}` cannot be written: `{above}` takes no new folder ({error.strerror or error}); choose another "
            "place"
        ) from error


def recover(path: Path) -> None:
    """Bring back what a kill between two renames has hidden, and remove what kills have left beside ``path``.

    Nothing happens to what another process is writing, nor where this one may not write.
    """
    if sys.platform == "win32":
        return
    for folder in _rooms(path):
        lock = _lock(folder)
        if lock is None:
            continue
        with suppress(OSError):
            _clear(folder, path)
        os.close(lock)


def _locked_room(path: Path) -> tuple[Path, int | None]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.{NEW}.", dir=path.parent))
        if sys.platform == "win32":
            return folder, None
        lock = _lock(folder)
        if lock is not None:  # otherwise another process has taken it for a left one before it was locked
            return folder, lock


def _rooms(path: Path) -> list[Path]:
    name = re.compile(rf"\.{re.escape(path.name)}\.(?:{NEW}|{OLD})\.[a-z0-9_]{{8}}")
    try:
        with os.scandir(path.parent) as entries:
            found = [e.name for e in entries if name.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [path.parent / name for name in sorted(found)]


def _lock(folder: Path) -> int | None:
    """Of the folder itself; None where another process has it, or the folder is gone."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(folder)):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _clear(folder: Path, path: Path) -> None:
    """Of a left room."""
    hidden = folder / (_EARLIER if f".{OLD}." in folder.name.removeprefix(f".{path.name}") else OLD)
    if hidden.is_dir() and not os.path.lexists(path):
        os.rename(hidden, path)
    shutil.rmtree(folder)
