"""A CSV manifest: ``path,label[,weight][,group]``, one image per line, paths relative to the manifest's folder."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lqf.data.readers.audit_table import refuse_audit_table
from lqf.data.sources import FileSource
from lqf.data.table import Table
from lqf.errors import LQFError
from lqf.utils.text import clean, counted

COLUMNS = ("path", "label", "weight", "group")
_MISSPELT = {
    "weights": "weight",
    "sample_weight": "weight",
    "groups": "group",
}  # would be ignored, and change the result


@dataclass(frozen=True)
class _Row:
    line: int
    id: str
    path: Path
    label: str
    weight: float
    group: str


class _BadLine(Exception):
    """What is wrong with one line."""


def read_manifest(manifest: Path) -> Table:
    """The table of a manifest. Commas, semicolons or tabs; other columns are ignored, all bad lines reported at once.

    An empty weight is 1. An empty group is the image alone: blank cells must not become one big group.
    """
    root = Path(os.path.normpath(manifest.parent))
    rows, faults = [], []
    first: dict[str, int] = {}
    header, records = _records(manifest)
    for line, cells in records:
        try:
            row = _row(root, header, line, cells)
            if row.id in first:
                raise _BadLine(f"{row.id} is on line {first[row.id]} already (give it weight 2 there)")
            first[row.id] = line
            rows.append(row)
        except _BadLine as e:
            faults.append(f"line {line}: {e}")
    if faults:
        more = f"; and {counted(len(faults) - 10, 'line')} more" if len(faults) > 10 else ""
        raise LQFError(f"`{manifest}` cannot be used: {'; '.join(faults[:10])}{more}")
    if not rows:
        raise LQFError(f"`{manifest}` lists no image; expected lines with {','.join(COLUMNS)} below its header")
    return Table(
        FileSource(f"`{manifest}`", tuple(row.path for row in rows)),
        ids=[row.id for row in rows],
        labels=[row.label for row in rows],
        weights=[row.weight for row in rows] if "weight" in header else None,
        groups=[row.group for row in rows] if "group" in header else None,
    )


def _records(manifest: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and every further line that is not blank with its number."""
    try:
        text = manifest.read_text(encoding="utf-8-sig")
        records = list(_numbered(text))
    except OSError as e:
        raise LQFError(f"the manifest `{manifest}` cannot be read: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise LQFError(f"the manifest `{manifest}` is not UTF-8 text (byte {e.start}); save it as CSV UTF-8") from e
    except csv.Error as e:
        raise LQFError(f"the manifest `{manifest}` is not a CSV file: {e}") from e
    if not records:
        raise LQFError(f"the manifest `{manifest}` is empty; expected a header {','.join(COLUMNS)}")
    return _header(manifest, records[0][1]), records[1:]


def _numbered(text: str) -> Iterator[tuple[int, list[str]]]:
    head = text.lstrip().split("\n", 1)[0]
    delimiter = next((d for d in ",;\t" if d in head), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    for cells in reader:
        cells = [cell.strip() for cell in cells]
        if any(cells):
            yield reader.line_num, cells


def _header(manifest: Path, cells: list[str]) -> list[str]:
    names = [cell.lower() for cell in cells]
    refuse_audit_table(manifest, names)
    missing = [name for name in COLUMNS[:2] if name not in names]
    if missing:
        raise LQFError(
            f"`{manifest}` has no column {' and no column '.join(missing)}; its header is {','.join(cells)!r}, "
            "expected path,label and optionally weight and group"
        )
    for name in names:
        if name in _MISSPELT:
            raise LQFError(f"`{manifest}` has a column {name}; call it {_MISSPELT[name]}, or it would not be used")
        if name in COLUMNS and names.count(name) > 1:
            raise LQFError(f"`{manifest}` has the column {name} twice")
    return names


def _row(root: Path, header: list[str], line: int, cells: list[str]) -> _Row:
    if len(cells) != len(header):
        raise _BadLine(f"{counted(len(cells), 'column')} instead of {len(header)}")
    cell = dict(zip(header, cells, strict=True))
    if not cell["path"] or not cell["label"]:
        raise _BadLine(f"no {'label' if cell['path'] else 'path'}")
    path = _find(root, cell["path"])
    inside = Path(os.path.normpath(path))  # one image has one id, written ./a.jpg or b/../a.jpg
    inside = inside.relative_to(root) if inside.is_relative_to(root) else inside
    group = clean(cell.get("group", "")) or clean(inside)
    return _Row(line, clean(inside), path, clean(cell["label"]), _weight(cell.get("weight", "")), group)


def _find(root: Path, given: str) -> Path:
    for name in (given, given.replace("\\", "/")):  # the second: a manifest made on Windows
        try:
            if (root / name).is_file():
                return root / name
            if (root / name).is_dir():
                raise _BadLine(f"{given} is a folder")
        except (OSError, ValueError):  # a name too long, or with a NUL
            break
    raise _BadLine(f"{given} is not there")


def _weight(text: str) -> float:
    try:
        weight = float(text or 1)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight >= 0):
        raise _BadLine(f"the weight {text} is not a finite number from 0 up")
    return weight
