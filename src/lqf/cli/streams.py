"""Standard streams that are closed or full: words to stderr are then lost, and a result that is lost is an error."""

from __future__ import annotations

import errno
import io
import os
import sys


class _Forgiving(io.FileIO):
    """A file descriptor; what it does not take is lost."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        try:
            return super().write(data) or 0
        except OSError:
            return len(bytes(data))


class _Closed(io.TextIOBase):
    """Standard output that was closed before the program began."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "it is closed")


def prepare() -> None:
    """Streams of this process's own, which never end in a traceback of Python's."""
    _keep_numbers()
    if sys.stdout is None:
        sys.stdout = _Closed()
    else:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # names a terminal cannot write
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Forgiving(2, "w", closefd=False)),
        encoding=getattr(sys.stderr, "encoding", "utf-8"),
        errors="backslashreplace",
        line_buffering=True,
        write_through=True,
    )


def silence() -> None:
    """Nothing more goes to standard output: Python would complain at its end about what is still to be written."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.close(sink)


def _keep_numbers() -> None:
    """Files that are opened later must not get the numbers of closed streams, into which libraries write."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
