"""Results for programs (JSON) and pieces of text for people, 80 columns wide."""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import Any

WIDTH = 80


def print_json(result: Mapping[str, Any]) -> None:
    """One object on one line of stdout."""
    print(json.dumps(plain(result), allow_nan=False), file=sys.stdout, flush=True)


def plain(value: Any) -> Any:
    """A value as JSON knows it; a number that is none (NaN, infinity) becomes null."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, PathLike):
        return fspath(value)
    if hasattr(value, "tolist"):  # numpy's and torch's
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def columns() -> int:
    """Width of the terminal, 80 at most: longer lines are hard to read."""
    return min(shutil.get_terminal_size().columns, WIDTH)


def percent(share: float | None) -> str:
    """0.1234 as `12.3%`."""
    return "-" if share is None else f"{share:.1%}"


def number(x: float | None) -> str:
    """Three digits: `0.0123`, `1.2e-05`."""
    return "-" if x is None else f"{x:.3g}"


def duration(seconds: float) -> str:
    """`3.2 s`, `4 min 07 s`, `1 h 12 min`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours} h {m:02d} min" if hours else f"{m} min {s:02d} s"


def counted(n: int, noun: str) -> str:
    """1 image, 2 images; 1 class, 2 classes; 1,200 passes."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{n:,} {noun if n == 1 else plural}"


def shortened(text: str, width: int) -> str:
    """At most ``width`` characters, the middle left out: the beginning and the end of a name tell most."""
    if len(text) <= width:
        return text
    left = (width - 1) // 2
    return f"{text[:left]}…{text[len(text) - (width - 1 - left) :]}"


def facts(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Lines `  name   value`, values aligned and wrapped; a fact without a value is left out."""
    rows = [(name, value) for name, value in pairs if value]
    margin = max(len(name) for name, _ in rows) + 4
    return [wrapped(f"  {name}".ljust(margin) + value, " " * margin) for name, value in rows]


def wrapped(text: str, indent: str = "") -> str:
    """Text in lines of the terminal's width; words, which one might want to copy, stay whole."""
    return textwrap.fill(text, columns(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
