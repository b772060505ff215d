"""Sentences about a result, said alike on the terminal and on the page; each states a measurement, none a hope."""

from __future__ import annotations

import math
import shlex
from typing import Any

from lqf.utils import text
from lqf.utils.text import counted

NAMES = {"head": "closed-form head", "bilinear": "bilinear head", "lqf": "LQF"}
POOLINGS = {"avg": "average", "bilinear": "bilinear", "both": "average and bilinear"}


def percent(share: float, digits: int = 1) -> str:
    """0.1734 -> "17.3 %"."""
    return text.percent(share, digits, unit=" %")


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
    """How far leave-one-out is from the test, for every model, and how far chance would take it."""
    gaps = [f"{_gap(m)} for {_the(NAMES[key])}" for key, m in result["models"].items()]
    full = result["models"]["lqf"]
    chance = 100 * math.hypot(full["loo_standard_error"], full["test_standard_error"])
    return (
        f"Leave-one-out needs the training cells only. It lies {', '.join(gaps[:-1])} and {gaps[-1]}; chance alone "
        f"moves two such numbers apart by {chance:.1f}."
    )


def _gap(model: dict[str, Any]) -> str:
    gap = 100 * (model["loo_error"] - model["test_error"])
    return f"{abs(gap):.1f} points {'above' if gap > 0 else 'below'} the test error"


def _the(name: str) -> str:
    return name if name == NAMES["lqf"] else f"the {name}"


def comparison(result: dict[str, Any]) -> str:
    """LQF and the head with the same pooling on the same test cells."""
    repaired, spoilt = result["repaired"], result["spoilt"]
    return (
        f"Of the test cells, LQF gets {repaired} right that the head with the same pooling gets wrong, and {spoilt} "
        "wrong that it gets right."
    )


def pooling(result: dict[str, Any]) -> str:
    """What was chosen, and by what."""
    tried, kept = result["pooling"]["tried"], result["pooling"]["kept"]
    losses = " and ".join(f"{t['loss']:.3f} with {POOLINGS[name]} pooling" for name, t in tried.items())
    return (
        f"LQF pools by {POOLINGS[kept]} pooling: leave-one-out of the two heads chose it, by a cross-entropy of "
        f"{losses}."
    )


def doubts(result: dict[str, Any]) -> str:
    """Whether the annotators doubted the suspicious cells, too: they are a witness that no model has heard."""
    cells, train = result["suspicious"], result["train"]
    unsure = sum(c["unsure"] for c in cells)
    return (
        f"For {unsure} of these {len(cells)} the annotators were unsure themselves (1/3 or 2/3), against "
        f"{percent(train['unsure'] / train['n'], 0)} of all training cells; no model has seen that."
    )


def commands(result: dict[str, Any]) -> list[str]:
    """What can be typed next with the demo's own files."""
    model, test = (shlex.quote(f"{result['out']}/{name}") for name in ("model", "test.csv"))
    return [f"lqf predict {model} IMAGE.png", f"lqf evaluate {model} {test}"]
