"""Sentences about a result, said alike on the terminal and on the page; each states a measurement, none a hope."""

from __future__ import annotations

import math
from typing import Any

from lqf.data.text import counted

NAMES = {"head": "closed-form head", "lqf": "LQF"}


def percent(share: float, digits: int = 1) -> str:
    """0.1734 -> "17.3 %"."""
    return f"{100 * share:.{digits}f} %"


def composition(result: dict[str, Any]) -> str:
    """Which cells were used."""
    train, test = result["train"], result["test"]
    return (
        f"{train['n']} labelled cells to learn from ({train['defective']} defective) and {test['n']} others for the "
        f"test ({test['defective']} defective), chosen by seed {result['seed']} and stratified: both have the mixture "
        "of cell kinds and annotations of the whole collection."
    )


def setting(result: dict[str, Any]) -> str:
    """What was fitted, on what."""
    return f"Backbone {result['backbone']} at {result['size']} px, {place(result)}."


def place(result: dict[str, Any]) -> str:
    """Where it was computed."""
    return counted(result["threads"], "CPU thread") if result["device"] == "cpu" else f"device {result['device']}"


def agreement(result: dict[str, Any]) -> str:
    """How far LQF's leave-one-out error is from its test error, and how far chance would take it."""
    m = result["models"]["lqf"]
    gap = 100 * (m["loo_error"] - m["test_error"])
    chance = 100 * math.hypot(m["loo_standard_error"], m["test_standard_error"])
    side = "above" if gap > 0 else "below"
    return (
        f"Leave-one-out needs the training cells only; for LQF it lies {abs(gap):.1f} points {side} the test error "
        f"(chance alone moves the two apart by {chance:.1f})."
    )


def comparison(result: dict[str, Any]) -> str:
    """Both models on the same test cells."""
    repaired, spoilt = result["repaired"], result["spoilt"]
    return (
        f"Of the test cells, LQF gets {repaired} right that the head gets wrong, and {spoilt} wrong that the head "
        "gets right."
    )


def doubts(result: dict[str, Any]) -> str:
    """Whether the annotators doubted the suspicious cells, too: they are a witness that no model has heard."""
    cells, train = result["suspicious"], result["train"]
    unsure = sum(c["unsure"] for c in cells)
    return (
        f"For {unsure} of these {len(cells)} the annotators were unsure themselves (1/3 or 2/3), against "
        f"{percent(train['unsure'] / train['n'], 0)} of all training cells; no model has seen that."
    )
