"""Lists of image files."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from lqf.data.sources import FileSource
from lqf.data.table import Table
from lqf.errors import LQFError
from lqf.utils.text import clean, counted, listed


def files_table(paths: Sequence[str | PathLike[str]], name: str | None = None) -> Table:
    """Image files, relative to the working directory; LQFError with those that are not there."""
    files = tuple(Path(path).expanduser() for path in paths)
    missing = [path for path in files if not path.is_file()]
    if missing:
        where = f"; relative paths begin at the working directory `{Path.cwd()}`"
        end = "" if all(path.is_absolute() for path in missing) else where
        raise LQFError(f"of {counted(len(files), 'path')} these are not files: {listed(missing)}{end}")
    name = name or f"the list of {counted(len(files), 'path')}"
    return Table(FileSource(name, files), [clean(path) for path in files])
