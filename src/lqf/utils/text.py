"""Names, numbers and paragraphs as people read them, on a terminal of 80 columns and in sentences."""

from __future__ import annotations

import math
import os
import re
import shutil
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import PurePath

WIDTH = 80
"""Columns of text on a terminal, at most: longer lines are hard to read."""
NARROWEST = 40
"""Columns that tables need."""


# --- names ------------------------------------------------------------------------------------------------------------


def clean(name: str | PurePath) -> str:
    r"""A file or class name as stable text: POSIX separators, Unicode NFC, always encodable as UTF-8.

    macOS stores "é" as two code points and Linux as typed, so the same class would have two names without NFC. A name
    whose bytes are not UTF-8 (``caf\xe9.jpg`` from an old disk) is written with its bytes escaped.
    """
    text = name.as_posix() if isinstance(name, PurePath) else name
    if any("\ud800" <= c <= "\udfff" for c in text):
        text = os.fsencode(text).decode("utf-8", "backslashreplace")
    return unicodedata.normalize("NFC", text)


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What a terminal acts upon, and what turns the direction of writing; lines and tabs are not among them."""

_BREAKS = re.compile("[\t\n\x0b\x0c\r\x85\u2028\u2029]")


def printable(text: str) -> str:
    """With what a terminal would obey, instead of showing it, written out: file names may hold anything."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def one_line(name: str) -> str:
    r"""A name in a table or a list: line breaks (as ``\n``) and tabs would look like two rows or columns."""
    return _BREAKS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), name)


def listed(names: Sequence[object], limit: int = 10) -> str:
    """`a`, `b`, … for a sentence, with the number of those left out."""
    shown = ", ".join(f"`{one_line(str(n))}`" for n in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def shortened(text: str, width: int) -> str:
    """At most ``width`` characters, the middle left out: the beginning and the end of a name say most."""
    text = one_line(text)
    if len(text) <= width:
        return text
    left = (width - 1) // 2
    return f"{text[:left]}…{text[len(text) - (width - 1 - left) :]}"


def shortened_path(path: str, width: int) -> str:
    """At most ``width`` characters: the file's name stays whole as long as it fits, what is before it loses its middle.

    `/home/me/photos/train/rose/image_0012.jpg` -> `/home/me/ph…/image_0012.jpg`
    """
    path = one_line(path)
    if len(path) <= width:
        return path
    name = len(path) - path.rfind("/")  # with the slash before it
    right = max(name, width // 2)
    return f"{path[: width - 1 - right]}…{path[-right:]}" if right < width else shortened(path[1 - name :], width)


# --- numbers ----------------------------------------------------------------------------------------------------------


def counted(n: int, noun: str) -> str:
    """1 image, 2 images; 1 class, 2 classes; 1 batch, 2 batches; 1,200 passes."""
    plural = noun + ("es" if noun.endswith(("s", "ch")) else "s")
    return f"{n:,} {noun if n == 1 else plural}"


def capitalized(text: str) -> str:
    """With a capital at the beginning; the rest stays as it is."""
    return f"{text[:1].upper()}{text[1:]}"


def percent(share: float | None, digits: int = 1, unit: str = "%") -> str:
    """0.1234 as `12.3%`; a dash where there is none."""
    return "–" if share is None else f"{100 * share:.{digits}f}{unit}"


def precise(p: float, unit: str = "%") -> str:
    """A probability with as many digits as tell it from certainty: 99.2%, 99.9983%."""
    digits = 1 if p < 0.999 or p > 1 - 1e-7 else -math.floor(math.log10(1 - p)) - 1
    return percent(p, digits, unit)


def number(x: float | None) -> str:
    """Three digits: `0.0123`, `1.2e-05`."""
    return "–" if x is None else f"{x:.3g}"


def duration(seconds: float) -> str:
    """`3.2 s`, `4 min 07 s`, `1 h 12 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours} h {m:02d} min" if hours else f"{m} min {s:02d} s"


def rough_duration(seconds: float) -> str:
    """Of a prediction: `40 s`, `3 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def seconds_of(text: str) -> float | None:
    """`90`, `20s`, `10m`, `1h30m`, `1h30` as seconds; None where the text says no time."""
    number, text = r"(\d+(?:\.\d+)?)", re.sub(r"(h\d+)$", r"\1m", text.replace(" ", ""))
    found = re.fullmatch(rf"(?:{number}h)?(?:{number}m(?:in)?)?(?:{number}s?)?", text)
    if found is None or not any(found.groups()):
        return None
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds


def byte_count(n_bytes: float) -> str:
    """`1.3 GB`, `640 MB`."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes / 1e3:.3g} kB"


# --- paragraphs -------------------------------------------------------------------------------------------------------


def columns() -> int:
    """Width of the terminal, `WIDTH` at most; of one that is narrower than a table can be, that of such a table."""
    return min(max(shutil.get_terminal_size().columns, NARROWEST), WIDTH)


def wrapped(text: str, indent: str = "", *, first: str = "", width: int | None = None) -> str:
    """Text in lines of the terminal's width; words, which one might want to copy, stay whole.

    Args:
        text: a paragraph.
        indent: of all lines but the first.
        first: of the first line.
        width: in place of the terminal's.
    """
    return textwrap.fill(
        text,
        columns() if width is None else width,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def facts(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Lines `  name   value`, values aligned and wrapped; a fact without a value is left out."""
    rows = [(name, value) for name, value in pairs if value]
    margin = max(len(name) for name, _ in rows) + 4
    return [wrapped(f"  {name}".ljust(margin) + value, " " * margin) for name, value in rows]


def against_the_fit(saved: int) -> str:
    """How many products fewer than the fit a change took."""
    if saved == 0:
        return "as many as the fit took"
    return f"{abs(saved):,} {'fewer' if saved > 0 else 'more'} than the fit took"
