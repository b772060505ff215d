"""The confusion matrix of many classes as a picture: a square per pair that occurs, its shade the share of the row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lqf.reports.html.plots import round_step
from lqf.utils.text import shortened

SIDE, LARGEST = 720, 22
"""Of the squares together and of one, in the units of the viewBox, about pixels."""
LEFT, TOP, LINE, NUMBER, LETTERS = 190, 22, 12, 24, 26
"""Margins, height of a line, width of a number, letters of a name."""
SHADES = 8
MOST_TIPS = 3000
"""Squares that say what they are when pointed at; of more, only the shades are drawn."""


def heatmap(classes: Sequence[str], confusion: np.ndarray) -> dict[str, Any]:
    """Where the squares and the names lie.

    Args:
        classes: names.
        confusion: (n, n) counts; rows are labels.
    """
    n = len(classes)
    cell = min(SIDE / n, LARGEST)
    return {
        "left": LEFT,
        "top": TOP,
        "cell": round(cell, 3),
        "n": n,
        "width": math.ceil(LEFT + n * cell + NUMBER / 2),
        "height": math.ceil(TOP + n * cell + LINE / 2),
        "shades": _shades(classes, confusion),
        "rows": [
            {"at": round(TOP + (k + 0.5) * cell + 3.5, 1), "name": f"{shortened(classes[k], LETTERS)} · {k + 1}"}
            for k in _labelled(n, LINE / cell)
        ],
        "columns": [{"at": round(LEFT + (k + 0.5) * cell, 1), "name": f"{k + 1}"} for k in _labelled(n, NUMBER / cell)],
    }


def _labelled(n: int, room: float) -> range:
    """Rows or columns with a name or a number: every one, every second, fifth, tenth, … where that has room."""
    every = int(round_step(max(room, 1)))
    return range(every - 1, n, every)


def _shades(classes: Sequence[str], confusion: np.ndarray) -> list[dict[str, Any]]:
    """Squares by colour and opacity: those of one shade are one path where there are too many to tell apart."""
    totals = confusion.sum(1)
    a, b = confusion.nonzero()
    shade = np.ceil(SHADES * confusion[a, b] / totals[a]).astype(int)
    found = []
    for right in (True, False):
        for level in range(1, SHADES + 1):
            of = np.flatnonzero((shade == level) & ((a == b) == right)).tolist()
            squares = [{"path": f"M{b[i]} {a[i]}h1v1h-1z", "tip": _tip(classes, confusion, a[i], b[i])} for i in of]
            if len(a) > MOST_TIPS and squares:
                squares = [{"path": "".join(s["path"] for s in squares), "tip": ""}]
            if squares:
                found.append({"right": right, "opacity": round(0.2 + 0.8 * level / SHADES, 2), "squares": squares})
    return found


def _tip(classes: Sequence[str], confusion: np.ndarray, a: int, b: int) -> str:
    return f"{classes[a]} → {classes[b]}: {confusion[a, b]} of {confusion[a].sum()}"
