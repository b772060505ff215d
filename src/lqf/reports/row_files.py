"""Rows in a file: CSV, JSON lines or Parquet, by the end of its name; written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lqf.errors import MissingDependency
from lqf.utils.files import atomic_file, check_file, write_table
from lqf.utils.json_values import dump_json

CSV, JSON_LINES, PARQUET = ".csv", ".jsonl", ".parquet"


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
    check(path, overwrite)
    columns = columns or list(rows[0])
    with atomic_file(path) as temporary:
        if path.suffix.lower() == CSV:
            write_table(temporary, rows, columns)
        elif path.suffix.lower() == JSON_LINES:
            temporary.write_text("".join(dump_json(row, indent=None) + "\n" for row in rows), encoding="utf-8")
        else:
            _write_parquet(temporary, rows, columns)


def _write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    pyarrow = _pyarrow()
    from pyarrow import parquet

    types = {float: pyarrow.float64(), bool: pyarrow.bool_(), int: pyarrow.int64(), str: pyarrow.string()}
    schema = pyarrow.schema([(name, types[_kind(rows, name)]) for name in columns])
    parquet.write_table(pyarrow.Table.from_pylist([dict(row) for row in rows], schema), path)


def _kind(rows: Sequence[Mapping[str, Any]], name: str) -> type:
    """Of a column's values; text where there is none."""
    return next((type(row[name]) for row in rows if row[name] is not None), str)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as e:
        raise MissingDependency("pyarrow", "Parquet files") from e
    return pyarrow
