"""Files are read when they are files: pipes and devices, which may never end, are refused, as is what is too large."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from lqf.utils.text import byte_count


class NotRegular(OSError):
    """Not a file to be read; the message is a reason that follows its name in a sentence."""


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """A regular file, behind links or not, for reading; never waits.

    Raises:
        NotRegular: it is something else.
        OSError: it cannot be opened.
    """
    _check(os.stat(path).st_mode)  # first: opening some devices does something
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(file, "rb") as opened:
        _check(os.fstat(file).st_mode)
        yield opened


def read_regular(path: Path, limit: int | None = None) -> bytes:
    """All bytes of a regular file; `NotRegular` where there are more than ``limit``."""
    with open_regular(path) as file:
        content = file.read(-1 if limit is None else limit + 1)
    if limit is not None and len(content) > limit:
        raise NotRegular(f"is larger than {byte_count(limit)}")
    return content


def _check(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegular(f"is {_kind(mode)}, not a file")


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((words for test, words in kinds if test(mode)), "a device")
