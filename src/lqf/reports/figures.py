"""The figures of an evaluation as people read them, the same on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lqf.utils.text import counted, percent

SHARES = ("error", "accuracy", "balanced_accuracy", "calibration_error")
"""Figures that are written in percent; the others have three digits."""


class Row(NamedTuple):
    """A figure: its name, its value, its interval, and what else there is to say about it."""

    name: str
    value: str
    interval: str
    note: str


def rows(result: Mapping[str, Any], in_percent: Callable[[float | None], str] = percent) -> list[Row]:
    """The figures of `Evaluation.to_dict`, the error first.

    Args:
        result: the evaluation.
        in_percent: how a share is written.
    """
    mean = "" if len(result["classes"]) == 2 else ", mean of classes"
    names = {
        "error": "error",
        "balanced_accuracy": "balanced accuracy",
        "macro_f1": "F1, mean of classes",
        "auc": f"AUC{mean}",
        "log_loss": "log loss",
        "calibration_error": "calibration error",
    }
    notes = {"calibration_error": counted(result["calibration_bins"], "bin")}
    return [
        Row(text, value(name, result[name], in_percent), interval(name, result["intervals"][name]), notes.get(name, ""))
        for name, text in names.items()
    ]


def value(name: str, x: float | None, in_percent: Callable[[float | None], str] = percent) -> str:
    """Of a figure of this name; a dash where it is not defined."""
    return in_percent(x) if name in SHARES else score(x)


def score(x: float | None) -> str:
    """`0.949`; a dash where there is none."""
    return "–" if x is None else f"{x:.3f}"


def interval(name: str, ends: tuple[float, float] | None) -> str:
    """`2.9 to 6.1`, in percent for a share; empty where there is none."""
    if ends is None:
        return ""
    low, high = ((percent(x, unit="") if name in SHARES else score(x)) for x in ends)
    return f"{low} to {high}"
