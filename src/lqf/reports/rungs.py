"""What a fit has tried on its way from model to model, what each gained and cost: rows of a table, and sentences.

A rung is a dict of `FitReport.rungs`; reports and the demo say the same about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lqf.fitting import Model
from lqf.fitting.report import last_kept
from lqf.fitting.rungs.finetuned import FINETUNED, LOWER_RATE
from lqf.fitting.rungs.heads import CROPS, HEAD, MIRRORED
from lqf.fitting.rungs.linear import LAST_STAGE, LQF, LQF_CROPS
from lqf.fitting.rungs.moved import MOVED
from lqf.fitting.rungs.stack import STACK
from lqf.utils.text import percent, rough_duration

Rung = Mapping[str, Any]
PHRASES = {
    HEAD: "the closed-form head",
    MIRRORED: "the closed-form head on images and their mirror images",
    CROPS: "the closed-form head in 8 views of every image",
    LAST_STAGE: "the last stage of the network, linearised, with the head",
    LQF: "LQF, the whole network linearised",
    LQF_CROPS: "LQF in 8 views of every image",
    MOVED: "LQF around the network that LQF has found",
    FINETUNED: "the network fine-tuned from its closed-form head",
    LOWER_RATE: "the network fine-tuned at a lower rate",
    STACK: "a stack",
}
"""Rungs by name, in a sentence."""
POOLINGS = {
    "avg": "average pooling",
    "bilinear": "bilinear pooling",
    "both": "average and bilinear pooling",
    "mean": "the mean of its tokens",
    "own and mean": "its own pooling and the mean of its tokens",
}
"""By name, after "on"."""
BODIES = (LAST_STAGE, LQF, LQF_CROPS, MOVED, FINETUNED, LOWER_RATE)
"""Rungs that change more of the network than its last layer."""


def rung_rows(rungs: Sequence[Rung]) -> list[dict[str, Any]]:
    """For a table: every rung with its gain, time and verdict as text."""
    return [
        {**rung, "gained": gain_of(rung), "took": _time(rung["seconds"]), "verdict": verdict(rung)} for rung in rungs
    ]


def gain_of(rung: Rung) -> str:
    """In cross-entropy, over the best model before, with its standard error; empty where there is none."""
    if rung["gain"] is None:
        return ""
    return f"{rung['gain']:+.3f} ± {rung['gain_standard_error']:.3f}".replace("-", "−")


def _time(seconds: float | None) -> str:
    return "" if seconds is None else rough_duration(seconds)


def verdict(rung: Rung) -> str:
    """Kept, or why not."""
    if rung["kept"]:
        return "kept"
    if rung["seconds"] is None:
        return "not tried yet" if rung["why"] == "not yet" else f"not tried: {rung['why']}"
    return f"{'given up' if rung['error'] is None else 'not kept'}: {rung['why']}"


def phrase(rung: Rung) -> str:
    """A rung in a sentence, a stack with its members."""
    if "members" not in rung:
        return PHRASES.get(rung["name"], str(rung["name"]))
    return f"a stack of {members(rung['members'])}"


def members(shares: Mapping[str, float]) -> str:
    """Of a stack, with their shares."""
    return _joined([f"{name} ({percent(share, 0, unit=' %')})" for name, share in shares.items()])


def which_model(rungs: Sequence[Rung]) -> str:
    """Which rung the model is, and what the network's body adds."""
    return f"The model is {phrase(last_kept(rungs))}. {body(rungs)}".rstrip()


def body(rungs: Sequence[Rung]) -> str:
    """What was gained by changing more of the network than its last layer."""
    kept, bodies = last_kept(rungs), [rung for rung in rungs if rung["name"] in BODIES]
    if "members" in kept:
        names = _joined([name for name in kept["members"] if name in BODIES])
        return f"The network's body has its part in it: {names}." if names else "The network's body has no part in it."
    if kept["name"] in BODIES:
        before = last_kept(rungs[: rungs.index(kept)])
        return f"In cross-entropy it gains {gain_of(kept)} over {phrase(before)}."
    tried = [rung for rung in bodies if rung["error"] is not None]
    if tried:
        found = _joined([f"{rung['name']} ({gain_of(rung)})" for rung in tried])
        gains = "gains" if len(tried) == 1 else "gain"
        return f"The network's body adds nothing that counts, so the head was kept: {found} {gains} nothing."
    if not bodies:
        return "The network's body was not tried."
    name, why = bodies[0]["name"], bodies[0]["why"]
    if bodies[0]["seconds"] is None:
        return f"The network's body was not tried: {name} {why}."
    return f"The network's body is not known to add anything: {name} was given up, {why}."


def next_up(rung: Rung | None) -> str:
    """What would come next; empty where nothing would."""
    if rung is None:
        return ""
    return f"Next would come {phrase(rung)}, about {rough_duration(rung['seconds'])}."


def unknowns(model: Model) -> int:
    """Weights that were solved for, in all members of a stack."""
    return sum(m.report.unknowns for m in model.members)


def _joined(names: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
