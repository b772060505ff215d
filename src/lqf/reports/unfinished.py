"""Predictions of a run that has not ended, beside the file that they are for.

The file is JSON lines: one that says of which model and options, and one for every image: its path, size and time of
change, and its classes. Lines are appended batch by batch; a run that is resumed begins at the first batch that is not
whole, and so passes the same batches through the network as a run that was not interrupted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from lqf.errors import LQFError
from lqf.utils import naming
from lqf.utils.text import counted

if sys.platform != "win32":
    import fcntl

FORMAT = "lqf-unfinished-predictions"
Ranked = tuple[tuple[str, float], ...]
GONE = (-1, -1)
"""Size and time of change of a file that cannot be found."""


def unfinished_path(out: Path) -> Path:
    """Beside the file."""
    return out.with_name(f"{out.name}.partial")


def stamp(path: Path) -> tuple[int, int]:
    """Size, and time of change in nanoseconds: where both are the same, a file is taken to be the same."""
    try:
        found = path.stat()
    except OSError:
        return GONE
    return found.st_size, found.st_mtime_ns


class Unfinished:
    """The predictions so far.

    Args:
        path: where they are kept.
        about: of which model ("model"), and by which options.
        per_part: images of a batch.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], per_part: int):
        self.path, self.about, self.per_part = path, dict(about), per_part
        self._file: BinaryIO | None = None

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """Refuse, before any work is done, to continue another run, and to throw away what somebody may want."""
        if not self.path.exists():
            return
        if resume:
            self._check_same(self._header())
        elif not overwrite:
            go_on, anew = naming.given("resume"), naming.given("overwrite")
            raise LQFError(
                f"`{self.path}` has the predictions of a run that was interrupted; {go_on} continues it, {anew} begins "
                "again"
            )

    def begin(self, names: Sequence[str], stamps: np.ndarray, *, resume: bool) -> np.ndarray:
        """(N,) places of the images that are predicted already, for `read`; −1: of the others.

        Args:
            names: of all images.
            stamps: (N, 2) of their files.
            resume: go on from what is there.
        """
        places = np.full(len(names), -1, np.int64)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._alone()
        if not (resume and self._header() is not None):
            self._file.truncate(0)
            self._file.write(self._first)
            self._file.flush()
            return places
        for i, place in self._whole_parts(names, stamps):
            if i >= 0:
                places[i] = place
        return places

    def _alone(self) -> BinaryIO:
        """The file, which no other process writes as long as this one has it open."""
        file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        if sys.platform == "win32":
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                return file
        except (BlockingIOError, FileNotFoundError):  # another run has it, or has just ended
            pass
        except OSError:  # a file system without locks
            return file
        file.close()
        raise LQFError(f"`{self.path}` is being written by another run; wait for it, or choose another file")

    def add(self, rows: Iterable[tuple[str, Sequence[int], Ranked]]) -> list[int]:
        """Append (name, stamp, classes) of one batch, and say where they are now."""
        assert self._file is not None
        self._file.seek(0, 2)
        place, places, lines = self._file.tell(), [], []
        for name, (size, changed), ranked in rows:
            line = _line({"path": name, "size": int(size), "changed": int(changed), "ranked": ranked})
            places.append(place)
            lines.append(line)
            place += len(line)
        self._file.write(b"".join(lines))
        self._file.flush()
        return places

    def read(self, place: int, name: str) -> Ranked:
        """The classes of one image."""
        assert self._file is not None
        self._file.seek(place)
        line = _read(self._file.readline())
        if line is None or line.get("path") != name:
            raise LQFError(f"`{self.path}` was changed while it was in use; let one run at a time write it")
        return tuple((label, p) for label, p in line["ranked"])

    def remove(self) -> None:
        """Nobody needs it any more."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """What is there stays."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def _first(self) -> bytes:
        """The first line."""
        return _line({"format": FORMAT, **self.about})

    def _header(self) -> dict[str, Any] | None:
        """What the file says about itself; None: the run was interrupted before it could say anything."""
        try:
            with self.path.open("rb") as file:
                line = file.readline()
        except OSError as e:
            raise LQFError(f"`{self.path}` cannot be read: {e.strerror or e}; delete it, or write another file") from e
        if not line.endswith(b"\n") and self._first.startswith(line):
            return None
        found = _read(line)
        return found if found is not None and found.get("format") == FORMAT else {}

    def _check_same(self, header: dict[str, Any] | None) -> None:
        if header is None:
            return
        anew = f"{naming.given('overwrite')} without {naming.name('resume')} begins again"
        if not header:
            raise LQFError(f"`{self.path}` does not have the predictions of an interrupted run; delete it, or: {anew}")
        if header.get("model") != self.about["model"]:
            raise LQFError(f"`{self.path}` has predictions of another model; continue with that one, or: {anew}")
        changed = [k for k in self.about if header.get(k) != self.about[k]]
        if changed:
            said = ", ".join(f"{k} {_said(header.get(k))}, now {_said(self.about[k])}" for k in changed)
            raise LQFError(f"`{self.path}` was begun with other options ({said}); continue with those, or: {anew}")

    def _whole_parts(self, names: Sequence[str], stamps: np.ndarray) -> list[tuple[int, int]]:
        """(image, place) of the lines of all whole batches, −1 for images that are no longer what they were; what
        follows is cut off.
        """
        assert self._file is not None
        where = {name: i for i, name in enumerate(names)}
        place, found = len(self._file.readline()), []
        for text in self._file:
            line = _read(text) if text.endswith(b"\n") else None
            if line is None:
                break
            i = where.get(line["path"], -1)
            same = i >= 0 and (line["size"], line["changed"]) == tuple(stamps[i])
            found.append((i if same else -1, place))
            place += len(text)
        whole = len(found) // self.per_part * self.per_part
        self._file.truncate(found[whole][1] if whole < len(found) else place)
        return found[:whole]


def remark(path: Path, done: int, n: int) -> str:
    """What a run leaves that did not end."""
    what = f"{done:,} of {counted(n, 'image')} {'is' if done == 1 else 'are'} predicted and kept in `{path}`"
    return f"{what}; the same again with {naming.given('resume')} continues"


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values).encode("ascii") + b"\n"


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _said(value: Any) -> str:
    return "none" if value is None else str(value)
