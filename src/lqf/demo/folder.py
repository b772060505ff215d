"""The demo's output folder: refused where something stands, written whole or not at all."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from lqf.demo.solar import Cell
from lqf.utils.files import FolderKind, check_folder, new_folder

FORMAT = "lqf-demo"
_KIND = FolderKind("result.json", FORMAT, "was not written by `lqf demo`")


def check_output(out: Path, overwrite: bool) -> None:
    """Refuse a folder that is there, and with ``overwrite`` one that no demo wrote."""
    check_folder(out, overwrite, _KIND)


def output_folder(out: Path, overwrite: bool) -> AbstractContextManager[Path]:
    """An empty folder beside ``out`` that takes its place when the block ends well, and goes when it does not."""
    return new_folder(out, overwrite, _KIND)


def write_manifest(path: Path, cells: Sequence[Cell]) -> None:
    """``path,label`` of every cell, as `lqf fit` and `lqf evaluate` read it."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows([c.name, c.label] for c in cells)
