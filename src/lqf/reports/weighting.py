"""What people are told about unequal weights: those of the classes, and by which a fit's errors and choices count.

All take a report as a dict (`FitReport.to_dict`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lqf.utils.text import percent

Report = Mapping[str, Any]
APART = 0.01
FEW = 6
"""Of so many classes all weights are shown, of more the extremes."""


def class_weights(report: Report) -> str:
    """`crack 3, ok 1`; empty where there are none."""
    weights = report["class_weights"]
    if not weights:
        return ""
    if len(weights) <= FEW:
        return ", ".join(f"{name} {weight:.3g}" for name, weight in weights.items())
    least, most = min(weights, key=weights.get), max(weights, key=weights.get)
    return f"from {weights[least]:.3g} ({least}) to {weights[most]:.3g} ({most})"


def how(report: Report, note: str) -> str:
    """How an error is known, with whether images count differently in it."""
    return f"weighted, {note}" if report["weighted"] else note


def counting(report: Report) -> str:
    """By what the errors of models and settings that were compared count; empty where every image counts the same."""
    if report["choose_by"] == "classes":
        return "every class counts alike"
    return "weighted" if report["weighted"] else ""


def of_choices(report: Report) -> str:
    """`counting` in a sentence, with a blank before it."""
    by = counting(report)
    return f" Error and cross-entropy: {by}." if by else ""


def balanced(report: Report, which: str) -> str:
    """Mean of the classes' errors, of "" (the whole choice) or "loo_"; empty where it is much the same as the error."""
    mean = report[f"{which}balanced_error"]
    if mean is None or (abs(mean - report[f"{which}error"]) < APART and report["choose_by"] == "images"):
        return ""
    return f"{percent(mean)} ± {100 * report[f'{which}balanced_standard_error']:.1f}"


def sentence(report: Report) -> str:
    """Both in a sentence, with a blank before it; empty where every image counts the same."""
    mean = report["loo_balanced_error"]
    also = "" if mean is None else f"; the mean of the classes' leave-one-out errors is {percent(mean)}"
    if report["class_weights"]:
        return (
            f" Training images count by the weights of their classes ({class_weights(report)}) in these errors{also}."
        )
    if report["weighted"]:
        return f" Training images count by their weights in these errors{also}."
    if report["choose_by"] == "classes":
        return f" Everything was chosen as if all classes had equally many images{also}."
    return ""
