"""A CSV manifest: ``path,label[,weight][,group]``, one image per line, paths relative to the manifest's folder."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lqf.data.labels import plain_label
from lqf.data.readers.audit_table import refuse_audit_table
from lqf.data.readers.columns import COLUMNS, header, weight_of
from lqf.data.sources import FileSource
from lqf.data.table import Label, Table
from lqf.errors import LQFError
from lqf.utils.text import clean, counted


@dataclass(frozen=True)
class _Row:
    line: int
    id: str
    path: Path
    label: Label
    weight: float
    group: str


class _BadLine(Exception):
    """What is wrong with one line."""


class _NotThere(_BadLine):
    """A file that is in none of the places where it was looked for."""


def read_manifest(manifest: Path, *, labelled: bool = True) -> Table:
    """The table of a manifest. Commas, semicolons or tabs; other columns are ignored, all bad lines reported at once.

    A relative path is that of a file in the manifest's folder or, where there is none, in the working directory. An
    empty weight is 1. An empty group is the image alone: blank cells must not become one big group.

    Args:
        manifest: the file.
        labelled: False where images are to be predicted: labels are not needed, and not read.
    """
    root = Path(os.path.normpath(manifest.parent))
    rows, faults, lost = [], list[tuple[int, str]](), False
    first: dict[str, int] = {}
    names, records = _records(manifest, COLUMNS[: 2 if labelled else 1])
    for line, cells in records:
        try:
            row = _row(root, names, line, cells, labelled)
            if row.id in first:
                raise _BadLine(f"{row.id} is on line {first[row.id]} already (give it weight 2 there)")
            first[row.id] = line
            rows.append(row)
        except (_BadLine, LQFError) as e:
            faults.append((line, str(e)))
            lost = lost or isinstance(e, _NotThere)
    if faults:
        places = f"; looked in {_places(root)}" if lost else ""
        raise LQFError(f"`{manifest}` cannot be used: {_told(faults)}{places}")
    if not rows:
        raise LQFError(f"`{manifest}` lists no image; expected lines with {','.join(COLUMNS)} below its header")
    return Table(
        FileSource(f"`{manifest}`", tuple(row.path for row in rows)),
        ids=[row.id for row in rows],
        labels=[row.label for row in rows] if labelled else None,
        weights=[row.weight for row in rows] if "weight" in names else None,
        groups=[row.group for row in rows] if "group" in names else None,
    )


def _told(faults: list[tuple[int, str]]) -> str:
    """What is wrong with each of the first lines; what they should have been, behind the last `; `, is said once."""
    parts = [(line, *fault.rpartition("; ")[::2]) for line, fault in faults[:10]]
    lines = [f"line {line}: {wrong or should}" for line, wrong, should in parts]
    if len(faults) > 10:
        lines.append(f"and {counted(len(faults) - 10, 'line')} more")
    return "; ".join([*lines, *dict.fromkeys(should for _, wrong, should in parts if wrong)])


def read_list(manifest: Path) -> list[tuple[Path, str]]:
    """Paths and labels of images to predict; a label that is not there is empty, a file that is not there is named."""
    root, found = Path(os.path.normpath(manifest.parent)), []
    names, records = _records(manifest, COLUMNS[:1])
    for line, cells in records:
        if len(cells) != len(names):
            raise LQFError(f"`{manifest}`, line {line}: {counted(len(cells), 'column')} instead of {len(names)}")
        cell = dict(zip(names, cells, strict=True))
        if not cell["path"]:
            raise LQFError(f"`{manifest}`, line {line}: no path")
        try:
            path = _find(root, cell["path"])
        except _BadLine:
            path = root / cell["path"]
        found.append((path, clean(cell.get("label", ""))))
    if not found:
        raise LQFError(f"`{manifest}` lists no image; expected lines with a path below its header")
    return found


def read_column(manifest: Path, column: str) -> dict[str, str]:
    """What another column says of every image, by its id, in the manifest's order."""
    root = Path(os.path.normpath(manifest.parent))
    names, records = _records(manifest, COLUMNS[:1])
    if column.lower() not in names:
        raise LQFError(f"`{manifest}` has no column {column}; it has {', '.join(names)}")
    at, found = names.index(column.lower()), {}
    for line, cells in records:
        try:
            row = _row(root, names, line, cells, labelled=False)
        except (_BadLine, LQFError) as e:
            raise LQFError(f"`{manifest}`, line {line}: {e}") from None
        if not cells[at]:
            raise LQFError(f"`{manifest}`, line {line}: the column {column} is empty; it is needed of every image")
        found[row.id] = clean(cells[at])
    return found


def columns_of(manifest: Path) -> list[str]:
    """Names of its columns, in small letters."""
    return _records(manifest, COLUMNS[:1])[0]


def column_of(manifest: Path, name: str) -> dict[str, str] | None:
    """The cells of one column by the ids of the images, which need not be there any more; None: there is no such
    column.
    """
    root, cells = Path(os.path.normpath(manifest.parent)), dict[str, str]()
    names, records = _records(manifest, COLUMNS[:1])
    if name not in names:
        return None
    for _, line in records:
        cell = dict(zip(names, line, strict=False))
        try:
            path = _find(root, cell["path"])
        except _BadLine:
            path = root / cell["path"]
        cells[_id(root, path)] = cell.get(name, "")
    return cells


def _records(manifest: Path, needed: tuple[str, ...]) -> tuple[list[str], list[tuple[int, list[str]]]]:
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
    refuse_audit_table(manifest, [cell.lower() for cell in records[0][1]])
    return header(f"`{manifest}`", records[0][1], needed), records[1:]


def _numbered(text: str) -> Iterator[tuple[int, list[str]]]:
    head = text.lstrip().split("\n", 1)[0]
    delimiter = next((d for d in ",;\t" if d in head), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    for cells in reader:
        cells = [cell.strip() for cell in cells]
        if any(cells):
            yield reader.line_num, cells


def _row(root: Path, names: list[str], line: int, cells: list[str], labelled: bool) -> _Row:
    if len(cells) != len(names):
        raise _BadLine(f"{counted(len(cells), 'column')} instead of {len(names)}")
    cell = dict(zip(names, cells, strict=True))
    if not cell["path"] or (labelled and not cell["label"]):
        raise _BadLine(f"no {'label' if cell['path'] else 'path'}")
    path = _find(root, cell["path"])
    name = _id(root, path)
    group = clean(cell.get("group", "")) or name
    weight = weight_of(cell.get("weight"))
    if weight is None:
        raise _BadLine(f"the weight {cell['weight']} is not a finite number from 0 up")
    return _Row(line, name, path, plain_label(cell["label"]) if labelled else "", weight, group)


def _id(root: Path, path: Path) -> str:
    """One image has one id, written ./a.jpg or b/../a.jpg."""
    inside = Path(os.path.normpath(path))
    return clean(inside.relative_to(root) if inside.is_relative_to(root) else inside)


def _find(root: Path, given: str) -> Path:
    for folder in (root, Path()):
        for name in (given, given.replace("\\", "/")):  # the second: a manifest made on Windows
            try:
                if (folder / name).is_file():
                    return folder / name
                if (folder / name).is_dir():
                    raise _BadLine(f"{given} is a folder")
            except (OSError, ValueError):  # a name too long, or with a NUL
                break
    raise _NotThere(f"{given} is not there")


def _places(root: Path) -> str:
    own = f"`{root.absolute()}`, the manifest's folder"
    return own if root.absolute() == Path.cwd() else f"{own}, and in the working directory `{Path.cwd()}`"
