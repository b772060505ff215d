"""Sentences about a result, said alike on the terminal and on the page; each states a measurement, none a hope."""

from __future__ import annotations

import math
import shlex
from typing import Any

from lqf.fitting.report import last_kept
from lqf.fitting.rungs.linear import LQF
from lqf.reports.rungs import gain_of, phrase, which_model
from lqf.utils import text
from lqf.utils.text import counted, rough_duration


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


def model(result: dict[str, Any]) -> str:
    """Which model it is, and what the network's body adds to the head."""
    return which_model(result["rungs"])


def name(result: dict[str, Any]) -> str:
    """The model, as the beginning of a sentence."""
    return text.capitalized(phrase(last_kept(result["rungs"])))


def whole_network(result: dict[str, Any]) -> str:
    """What LQF has gained, or why it was not tried and what that would take; empty where `model` says it."""
    rung = _rung(result, LQF)
    if rung is None:
        return "LQF, the whole network linearised, was not tried: the time was up before it."
    if rung["seconds"] is None:
        return f"LQF, the whole network linearised, was not tried: it {_needs(result, rung)}."
    if rung["error"] is None:
        return f"LQF, the whole network linearised, was given up: {rung['why']}."
    kept = last_kept(result["rungs"])
    if kept["name"] == LQF or kept["solver"] == "head":
        return ""
    end = "and was kept before that" if rung["kept"] else "which does not count"
    return f"LQF alone, the whole network linearised, gained {gain_of(rung)} over the best model before it, {end}."


def _rung(result: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((r for r in result["rungs"] if r["name"] == name), None)


def _needs(result: dict[str, Any], rung: dict[str, Any]) -> str:
    if not rung["why"].startswith("needs about"):
        return str(rung["why"])
    seconds = rough_duration(rung["predicted_seconds"])
    return f"needs about {seconds}, and this fit had {rough_duration(result['fit_seconds'])}"


def agreement(result: dict[str, Any]) -> str:
    """How far the error that the fit expected is from the test's, and how far chance would take it."""
    found = result["model"]
    gap = 100 * (found["test_error"] - result["error"])
    chance = 100 * math.hypot(result["error_standard_error"], found["test_standard_error"])
    return (
        f"From the training cells alone the fit expected {percent(result['error'])} ± "
        f"{100 * result['error_standard_error']:.1f} on unseen cells ({result['error_note']}). The test says "
        f"{percent(found['test_error'])} ± {100 * found['test_standard_error']:.1f}: {abs(gap):.1f} points "
        f"{'above' if gap > 0 else 'below'}; chance alone moves two such numbers apart by {chance:.1f}."
    )


def comparison(result: dict[str, Any]) -> str:
    """The model and the first head on the same test cells; empty where the model is that head, or was alone tested."""
    repaired, spoilt = result["repaired"], result["spoilt"]
    first = next(r["name"] for r in result["rungs"] if r["kept"])
    if repaired is None or first == result["model"]["name"]:
        return ""
    return (
        f"Of the test cells, the model gets {repaired} right that the first head gets wrong, and {spoilt} wrong that "
        "it gets right."
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
    fitted, test = (_file(result, name) for name in ("model", "test.csv"))
    return [
        f"lqf predict {fitted} IMAGE.png",
        f"lqf evaluate {fitted} {test}",
        f"lqf report {fitted} --test {test} -o report.html",
    ]


def further(result: dict[str, Any]) -> tuple[str, str] | None:
    """How far a longer fit climbs and what that takes, and the command for it; None where nothing comes next."""
    rung = result["next_rung"]
    if rung is None:
        return None
    effort = rung["effort"]
    top = _rung(result, LQF) if effort == "standard" else rung
    seconds = None if top is None else top.get("predicted_seconds", rung["seconds"])
    about = f"up to {LQF if effort == 'standard' else rung['name']}"
    if seconds is not None:
        about += f", about {rough_duration(seconds)} more"
    options = f"--size {result['size']} --seed {result['seed']} --effort {effort}"
    return about, f"lqf fit {_file(result, 'train.csv')} -o further {options}"


def _file(result: dict[str, Any], name: str) -> str:
    return shlex.quote(f"{result['out']}/{name}")
