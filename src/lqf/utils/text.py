"""Names as people read them: ids and class names that survive JSON and other file systems, and lists for sentences."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from pathlib import PurePath


def clean(name: str | PurePath) -> str:
    r"""A file or class name as stable text: POSIX separators, Unicode NFC, always encodable as UTF-8.

    macOS stores "é" as two code points and Linux as typed, so the same class would have two names without NFC. A name
    whose bytes are no UTF-8 (``caf\xe9.jpg`` from an old disk) is written with its bytes escaped.
    """
    text = name.as_posix() if isinstance(name, PurePath) else name
    if any("\ud800" <= c <= "\udfff" for c in text):
        text = os.fsencode(text).decode("utf-8", "backslashreplace")
    return unicodedata.normalize("NFC", text)


def listed(names: Sequence[object], limit: int = 10) -> str:
    """`a`, `b`, … for a sentence, with the number of those left out."""
    shown = ", ".join(f"`{n}`" for n in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def counted(n: int, noun: str) -> str:
    """1 image, 2 images; 1 class, 2 classes."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{n} {noun if n == 1 else plural}"
