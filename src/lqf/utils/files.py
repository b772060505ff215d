"""Files and folders of results: refused where something stands, written whole or not at all."""

from __future__ import annotations

import csv
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lqf.errors import LQFError
from lqf.utils import naming
from lqf.utils.exchange import exchange
from lqf.utils.rooms import NEW, OLD, behind_links, check_place, recover, room

# --- files ------------------------------------------------------------------------------------------------------------


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A name in a hidden folder beside ``path``; what is written there takes its place when the block ends well, and
    goes when it does not.
    """
    path = behind_links(path)
    with room(path) as hidden:
        temporary = hidden / f"{NEW}{path.suffix}"  # some writers go by the ending
        yield temporary
        _ordinary(temporary, hidden)
        os.replace(temporary, path)


def write_file(path: Path, content: bytes | str) -> None:
    """Put the content in place in one step."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def check_file(path: Path, overwrite: bool, suffixes: Sequence[str]) -> None:
    """Refuse, before any work is done, a name that cannot be written or whose kind is not known."""
    if path.is_dir():
        raise LQFError(f"`{path}` is a folder; give the name of a file to write")
    if path.suffix.lower() not in suffixes:
        raise LQFError(f"`{path}` does not end in {' or '.join(suffixes)}; that says what to write")
    if path.exists() and not overwrite:
        raise LQFError(f"`{path}` exists; choose another file, or give {naming.given('overwrite')} to replace it")
    check_place(behind_links(path))


def write_table(path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """A CSV of these columns; floats with all their digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


# --- folders ----------------------------------------------------------------------------------------------------------


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """An empty folder that takes the place of ``path`` when the block ends well, and goes when it does not."""
    path = behind_links(path)
    with room(path) as hidden:
        new = hidden / NEW
        new.mkdir()
        yield new
        _ordinary(new, hidden)
        replace_folder(new, path)


def replace_folder(new: Path, path: Path) -> None:
    """Put ``new``, which lies in a `room`, in the place of ``path``: in one step where the system has one.

    Where it has none there are two, and a kill between them leaves the old folder in the room for `recover`.
    """
    if not os.path.lexists(path):
        os.rename(new, path)
    elif not exchange(new, path):
        old = new.with_name(OLD)
        os.rename(path, old)
        try:
            os.rename(new, path)
        except OSError:
            os.rename(old, path)
            raise


def _ordinary(path: Path, hidden: Path) -> None:
    """Files get the permissions of any new file: some writers make them private."""
    probe = hidden / ".mode"
    probe.touch()  # what the umask and the folder say; asking for the umask itself would change it for other threads
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for file in [path, *path.rglob("*")]:
        if file.is_file() and not file.is_symlink():
            file.chmod(mode)


@dataclass(frozen=True)
class FolderKind:
    """How folders of one kind are told from others.

    Attributes:
        marker: a JSON file in them.
        format: its entry "format".
        foreign: what is wrong with another folder, after its name.
    """

    marker: str
    format: str
    foreign: str


def check_folder(path: Path, overwrite: bool, kind: FolderKind) -> None:
    """Refuse, before any work is done, a folder that is there, and with ``overwrite`` one of another kind."""
    recover(behind_links(path))
    if not path.exists():
        check_place(behind_links(path))
        return
    if not overwrite:
        raise LQFError(
            f"`{path}` exists; choose another output folder, or give {naming.given('overwrite')} to replace it"
        )
    if not path.is_dir() or (any(path.iterdir()) and not has_format(path / kind.marker, kind.format)):
        raise LQFError(f"`{path}` exists and {kind.foreign}; it is not replaced even with {naming.given('overwrite')}")


def has_format(file: Path, format: str) -> bool:
    """Whether a JSON file says that it is of this format: another program's may have the same name."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))["format"] == format
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextmanager
def new_folder(path: Path, overwrite: bool, kind: FolderKind) -> Iterator[Path]:
    """`atomic_folder`, where `check_folder` allows it when the block has ended: minutes may have passed."""
    with atomic_folder(path) as temporary:
        yield temporary
        check_folder(path, overwrite, kind)
