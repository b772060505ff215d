"""A subset made of its public original: files found by name, reduced, and compared with the list.

Where names were replaced, a file is called by the first twelve digits of the MD5 of its path in the original
("images/banded/banded_0002.jpg"), so that the path itself need not be known; what is not found so is looked for by what
it shows. Pictures whose short side is longer than 160 pixels are reduced to that, and all are stored as JPEG of quality
90. (By which filter the list's own files were reduced is not known: others may differ from them in every byte.)
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageOps

from lqf.errors import LQFError
from lqf.utils.files import write_file
from lqf_paper.sources.lists import ALIKE, Entry, apart, shown

SIDE, QUALITY, HASHED = 160, 90, 12
PICTURES = (".jpg", ".jpeg", ".png")


def originals(entries: Sequence[Entry], folder: Path) -> dict[str, Path]:
    """Path in the subset -> file of the original; those that are not found are left out.

    A file is known by its name without the ending, in a folder of its class where several have that name, by the MD5 of
    the last parts of its path, or by what it shows.
    """
    files = [p for p in sorted(folder.rglob("*")) if p.suffix.lower() in PICTURES and p.is_file()]
    if not files:
        raise LQFError(f"`{folder}` has no pictures; give the folder that the original's archive unpacks to")
    by_stem: dict[str, list[Path]] = {}
    for file in files:
        for stem in {file.stem, *_hashed(file)}:
            by_stem.setdefault(stem, []).append(file)
    found = {}
    for entry in entries:
        stem, of = entry.name.rsplit(".", 1)[0], entry.path.split("/")[-2]
        candidates = by_stem.get(stem, [])
        own = [c for c in candidates if of in c.parts]
        part = [c for c in own if entry.path.split("/")[0] in c.parts]
        if chosen := part or own or candidates:
            found[entry.path] = chosen[0]
    missing = [e for e in entries if e.path not in found]
    return found | (_by_look(missing, files) if missing else {})


def _by_look(entries: Sequence[Entry], files: Sequence[Path]) -> dict[str, Path]:
    """Those that exactly one file shows."""
    looks = {file: shown(file) for file in files}
    found = {}
    for entry in entries:
        alike = [file for file, look in looks.items() if apart(look, entry.shown) <= ALIKE]
        if len(alike) == 1:
            found[entry.path] = alike[0]
    return found


def _hashed(file: Path) -> list[str]:
    """The names that a file may have in a subset, by how much of its path the original has."""
    parts = file.parts
    paths = ("/".join(parts[k:]) for k in range(1, len(parts)))
    return [hashlib.md5(p.encode(), usedforsecurity=False).hexdigest()[:HASHED] for p in paths]


def make_subset(entries: Sequence[Entry], original: Path, out: Path) -> list[str]:
    """Write the subset; the paths whose original was not found."""
    found = originals(entries, original)
    for entry in entries:
        if entry.path in found:
            _write_reduced(found[entry.path], out / entry.path)
    return [e.path for e in entries if e.path not in found]


def _write_reduced(file: Path, to: Path) -> None:
    with Image.open(file) as image:
        whole = ImageOps.exif_transpose(image).convert("RGB")
    short = min(whole.size)
    if short > SIDE:
        size = tuple(max(SIDE, round(side * SIDE / short)) for side in whole.size)
        whole = whole.resize((size[0], size[1]), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    whole.save(stream, "JPEG", quality=QUALITY)
    to.parent.mkdir(parents=True, exist_ok=True)
    write_file(to, stream.getvalue())
