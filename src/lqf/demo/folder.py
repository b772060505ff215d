"""The demo's output folder: refused where something stands, written whole or not at all."""

from __future__ import annotations

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lqf.demo.solar import Cell
from lqf.errors import LQFError
from lqf.storage import replace_folder

FORMAT = "lqf-demo"


def check_output(out: Path, overwrite: bool) -> None:
    """Refuse a folder that is there, and with ``overwrite`` one that no demo wrote."""
    if not out.exists():
        return
    if not overwrite:
        raise LQFError(f"`{out}` exists; choose another output folder, or give --overwrite to replace it")
    if not out.is_dir() or (any(out.iterdir()) and not _is_demo(out)):
        raise LQFError(f"`{out}` exists and was not written by `lqf demo`; it is not replaced even with --overwrite")


def _is_demo(out: Path) -> bool:
    try:
        return json.loads((out / "result.json").read_text(encoding="utf-8"))["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextmanager
def output_folder(out: Path, overwrite: bool) -> Iterator[Path]:
    """An empty folder beside ``out`` that takes its place when the block ends well, and goes when it does not."""
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield beside
        os.chmod(beside, 0o755)
        check_output(out, overwrite)  # again: minutes have passed
        replace_folder(beside, out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def write_manifest(path: Path, cells: Sequence[Cell]) -> None:
    """``path,label`` of every cell, as `lqf fit` and `lqf evaluate` read it."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows([c.path.resolve(), c.label] for c in cells)
