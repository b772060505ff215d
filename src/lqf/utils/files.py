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
from lqf.storage import replace_folder


def check_folder(out: Path, overwrite: bool, *, marker: str, format: str, command: str) -> None:
    """Refuse a folder that is there, and with ``overwrite`` one that ``command`` did not write.

    What it wrote has a JSON file ``marker`` with the entry "format": ``format``.
    """
    if not out.exists():
        return
    if not overwrite:
        raise LQFError(f"`{out}` exists; choose another output folder, or give --overwrite to replace it")
    if not out.is_dir() or (any(out.iterdir()) and not _has_format(out / marker, format)):
        raise LQFError(f"`{out}` exists and was not written by `{command}`; it is not replaced even with --overwrite")


def _has_format(file: Path, format: str) -> bool:
    try:
        return json.loads(file.read_text(encoding="utf-8"))["format"] == format
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextmanager
def new_folder(out: Path, overwrite: bool, *, marker: str, format: str, command: str) -> Iterator[Path]:
    """An empty folder beside ``out`` that takes its place when the block ends well, and goes when it does not."""
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield beside
        os.chmod(beside, 0o755)
        check_folder(out, overwrite, marker=marker, format=format, command=command)  # again: minutes have passed
        replace_folder(beside, out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def check_file(out: Path, overwrite: bool, suffixes: Sequence[str]) -> None:
    """Refuse, before any work is done, a name that cannot be written or whose kind is not known."""
    if out.is_dir():
        raise LQFError(f"`{out}` is a folder; give the name of a file to write")
    if out.suffix.lower() not in suffixes:
        raise LQFError(f"`{out}` does not end in {' or '.join(suffixes)}; that says what to write")
    if out.exists() and not overwrite:
        raise LQFError(f"`{out}` exists; choose another file, or give --overwrite to replace it")


def write_file(out: Path, content: bytes | str) -> None:
    """Put the content in place in one step."""
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        os.replace(beside, out)
    finally:
        beside.unlink(missing_ok=True)


def write_table(path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """A CSV of these columns; floats with all their digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
