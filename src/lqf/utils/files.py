"""Files and folders of results: refused where something stands, written whole or not at all."""

from __future__ import annotations

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lqf.errors import LQFError
from lqf.utils import naming

# --- files ------------------------------------------------------------------------------------------------------------


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A name beside ``path``; what is written there takes its place when the block ends well, and goes when it does
    not.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


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


def write_table(path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """A CSV of these columns; floats with all their digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


# --- folders ----------------------------------------------------------------------------------------------------------


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """An empty folder beside ``path`` that takes its place when the block ends well, and goes when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield temporary
        os.chmod(temporary, 0o755)
        replace_folder(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def replace_folder(new: Path, path: Path) -> None:
    """Put ``new`` in the place of ``path``; the old folder is deleted only when the new one stands."""
    if not path.exists():
        os.rename(new, path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    os.rename(path, old / "model")
    try:
        os.rename(new, path)
    except OSError:
        os.rename(old / "model", path)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def check_folder(path: Path, overwrite: bool, *, marker: str, format: str, command: str) -> None:
    """Refuse a folder that is there, and with ``overwrite`` one that ``command`` did not write.

    What it wrote has a JSON file ``marker`` with the entry "format": ``format``.
    """
    if not path.exists():
        return
    if not overwrite:
        raise LQFError(
            f"`{path}` exists; choose another output folder, or give {naming.given('overwrite')} to replace it"
        )
    if not path.is_dir() or (any(path.iterdir()) and not has_format(path / marker, format)):
        raise LQFError(
            f"`{path}` exists and was not written by `{command}`; it is not replaced even with "
            f"{naming.given('overwrite')}"
        )


def has_format(file: Path, format: str) -> bool:
    """Whether a JSON file says that it is of this format: another program's may have the same name."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))["format"] == format
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextmanager
def new_folder(path: Path, overwrite: bool, *, marker: str, format: str, command: str) -> Iterator[Path]:
    """`atomic_folder`, where `check_folder` allows it when the block has ended: minutes may have passed."""
    with atomic_folder(path) as temporary:
        yield temporary
        check_folder(path, overwrite, marker=marker, format=format, command=command)
