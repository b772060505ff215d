"""The list of a subset: every file with a hash of its bytes and one of what it shows.

    # train/011.Rusty_Blackbird
    fa1c09e55d02b3c4 71e8c4939b3a2b66 Rusty_Blackbird_0001_6548.jpg

The first is the beginning of the file's SHA-256. The second has a bit for every two neighbours among 9 × 8 grey values,
whether the right one is brighter: another version of the JPEG library changes the first and hardly the second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from lqf.errors import LQFError

DIGITS = 16


@dataclass(frozen=True)
class Entry:
    """A file of a subset.

    Attributes:
        path: "train/CLASS/NAME.jpg".
        sha256: its first `DIGITS` hexadecimal digits.
        shown: 16 hexadecimal digits.
    """

    path: str
    sha256: str
    shown: str

    @property
    def name(self) -> str:
        """The file's."""
        return self.path.rsplit("/", 1)[1]


def read_list(file: Path) -> list[Entry]:
    """All files of a subset."""
    if not file.is_file():
        raise LQFError(f"there is no list `{file}`")
    entries, folder = [], ""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            folder = line[2:]
            continue
        parts = line.split(" ", 2)
        if len(parts) != 3 or not folder:
            raise LQFError(f"`{file}` is no list of a subset: the line `{line}` has no hash, no fingerprint or no name")
        entries.append(Entry(f"{folder}/{parts[2]}", parts[0], parts[1]))
    return entries


def list_text(entries: Iterable[Entry]) -> str:
    """The list as it is written."""
    lines, folder = [], ""
    for e in sorted(entries, key=lambda e: e.path):
        if folder != (folder := e.path.rsplit("/", 1)[0]):
            lines.append(f"# {folder}")
        lines.append(f"{e.sha256} {e.shown} {e.name}")
    return "\n".join(lines) + "\n"


def entry_of(folder: Path, path: str) -> Entry:
    """A file as it is on disk."""
    file = folder / path
    return Entry(path, hashlib.sha256(file.read_bytes()).hexdigest()[:DIGITS], shown(file))


def shown(file: Path) -> str:
    """64 bits of what a picture shows."""
    with Image.open(file) as image:
        grey = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.BOX), dtype=int)
    bits = (grey[:, 1:] > grey[:, :-1]).flatten()
    return f"{int(''.join('01'[int(b)] for b in bits), 2):016x}"


def apart(a: str, b: str) -> int:
    """Bits in which two such numbers differ."""
    return (int(a, 16) ^ int(b, 16)).bit_count()


@dataclass(frozen=True)
class Check:
    """What a folder has of a list.

    Attributes:
        same: files equal byte by byte.
        alike: others that show the same.
        different: paths that show something else.
        missing: paths that are not there.
        more: pictures in the folder that the list does not have.
    """

    same: int
    alike: int
    different: tuple[str, ...]
    missing: tuple[str, ...]
    more: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether the folder is the subset."""
        return not (self.different or self.missing or self.more)

    def __str__(self) -> str:
        parts = [f"{self.same:,} files are the list's byte by byte"]
        parts += [f"{self.alike:,} others show the same"] if self.alike else []
        for what, paths in (("show something else", self.different), ("are missing", self.missing)):
            parts += [f"{len(paths):,} {what} ({paths[0]})"] if paths else []
        return "; ".join([*parts, *([f"{len(self.more):,} are not in the list ({self.more[0]})"] if self.more else [])])


ALIKE = 6
"""Bits that another codec or resampling may turn."""


def check(entries: Iterable[Entry], folder: Path) -> Check:
    """Compare a folder with a list."""
    wanted = {e.path: e for e in entries}
    there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.suffix == ".jpg"}
    same, alike, different = 0, 0, []
    for path in sorted(wanted.keys() & there):
        found = entry_of(folder, path)
        if found.sha256 == wanted[path].sha256:
            same += 1
        elif apart(found.shown, wanted[path].shown) <= ALIKE:
            alike += 1
        else:
            different.append(path)
    missing, more = sorted(wanted.keys() - there), sorted(there - wanted.keys())
    return Check(same, alike, tuple(different), tuple(missing), tuple(more))
