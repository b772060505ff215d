"""Rows in a file: CSV, JSON lines or Parquet, by the end of its name; written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from lqf.errors import MissingDependency
from lqf.utils.files import atomic_file, check_file, write_table
from lqf.utils.json_values import dump_json

CSV, JSON_LINES, PARQUET = ".csv", ".jsonl", ".parquet"
GROUP = 1 << 14
"""Rows of a row group of Parquet."""


def check(path: Path, overwrite: bool) -> None:
    """Refuse, before any work is done, what cannot be written."""
    check_file(path, overwrite, (CSV, JSON_LINES, PARQUET))
    if path.suffix.lower() == PARQUET:
        _pyarrow()


def is_nested(path: Path) -> bool:
    """Whether a value may be a list."""
    return path.suffix.lower() == JSON_LINES


def write(
    path: Path, rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str] = (), overwrite: bool = False
) -> None:
    """Put the file in place in one step.

    Args:
        path: of the file.
        rows: all with the same columns, of text, numbers or truth values; None: nothing there.
        columns: their names, where there may be no row.
        overwrite: a file that is there.
    """
    names = columns or list(rows[0])
    write_stream(path, rows, {name: _kind(rows, name) for name in names}, overwrite=overwrite)


def write_stream(
    path: Path, rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, type], *, overwrite: bool = False
) -> None:
    """`write` of rows that are made one by one, and never held together.

    Args:
        path: of the file.
        rows: all with the same columns.
        kinds: the columns, and what their values are: float, bool, int or str.
        overwrite: a file that is there.
    """
    check(path, overwrite)
    with atomic_file(path) as temporary:
        if path.suffix.lower() == CSV:
            write_table(temporary, rows, list(kinds))
        elif path.suffix.lower() == JSON_LINES:
            with temporary.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(dump_json(row, indent=None) + "\n" for row in rows)
        else:
            _write_parquet(temporary, rows, kinds)


def _write_parquet(path: Path, rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, type]) -> None:
    pyarrow = _pyarrow()
    from pyarrow import parquet

    types = {float: pyarrow.float64(), bool: pyarrow.bool_(), int: pyarrow.int64(), str: pyarrow.string()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in kinds.items()])
    with parquet.ParquetWriter(path, schema) as writer:
        left = iter(rows)
        while group := [dict(row) for row in islice(left, GROUP)]:
            writer.write_table(pyarrow.Table.from_pylist(group, schema))


def _kind(rows: Sequence[Mapping[str, Any]], name: str) -> type:
    """Of a column's values; text where there is none."""
    return next((type(row[name]) for row in rows if row[name] is not None), str)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as e:
        raise MissingDependency("pyarrow", "Parquet files") from e
    return pyarrow
