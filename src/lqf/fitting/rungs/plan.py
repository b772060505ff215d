"""Which rungs a climb will try, in order, with the predicted seconds of each: said before it starts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from lqf.backbones import Backbone
from lqf.backbones.prefix import split_at, stages
from lqf.data import normalize
from lqf.errors import LQFError
from lqf.fitting.context import Context
from lqf.fitting.rungs.finetuned import LOWER_RATE, FineTunedRung
from lqf.fitting.rungs.heads import CROPS, HEAD, MANY_VIEWS, MIRRORED, HeadRung, ViewsRung
from lqf.fitting.rungs.linear import LAST_STAGE, LQF, LQF_CROPS, LinearRung
from lqf.fitting.rungs.moved import MovedRung
from lqf.fitting.rungs.pace import ROWS, seconds_of_pass
from lqf.fitting.rungs.rung import Ground, Rung
from lqf.fitting.rungs.stack import StackRung
from lqf.settings import Settings
from lqf.utils.text import rough_duration

EFFORTS = ("quick", "standard", "best")
UNASKED = 120.0
"""Seconds of a fit on a CPU for which neither effort nor time was given."""
LAST_SHARE = 0.25
"""The last stage is the latest from which on the network has at least this share of its weights."""
LATEST = 8
"""Stages that are looked at, from the end."""


@dataclass(frozen=True)
class Plan:
    """Rungs in order.

    Attributes:
        rungs: to be tried.
        further: beyond the effort.
        effort: "quick", "standard" or "best".
        seconds: predicted, of each of both.
        stage: from which on the network is linearised while heads are fitted, so that everything before is kept.
        limit: seconds that there are; None: as many as it takes.
    """

    rungs: tuple[Rung, ...]
    further: tuple[Rung, ...]
    effort: str
    seconds: dict[str, float]
    stage: str
    limit: float | None

    def lines(self, done: Collection[str] = ()) -> Iterator[str]:
        """For people, before it starts; ``done``: rungs that an earlier climb has tried."""
        within = "" if self.limit is None else f", {rough_duration(self.limit)} left"
        yield f"Plan (effort {self.effort}{within}):"
        total, width, names = 0.0, max(len(rung.name) for rung in self.rungs), [rung.name for rung in self.rungs]
        instead = LAST_STAGE in names and names.index(LAST_STAGE) > names.index(LQF)
        for name in (n for n in names if n not in done):
            seconds, when = self.seconds[name], ""
            if name == LAST_STAGE and instead:
                when = ", if LQF takes too long"
            elif self.limit is not None and total + seconds > self.limit and name != HEAD:
                when = ", if time is left"
            total += 0.0 if when else seconds
            yield f"  {name.ljust(width)}  about {_about(seconds)}{when}"


def _about(seconds: float) -> str:
    return rough_duration(max(seconds, 1.0))


def effort_of(context: Context) -> str:
    """The settings' effort; auto: as far as a given time allows, else standard."""
    settings = context.settings
    if settings.effort != "auto":
        return settings.effort
    return "best" if settings.time_limit is not None else "standard"


def time_for(settings: Settings, cuda: bool) -> float | None:
    """Seconds of a whole fit: those given, or `UNASKED` on a CPU where nothing was said; None: no limit."""
    if settings.time_limit is not None:
        return float(settings.time_limit)
    return None if settings.effort != "auto" or cuda else UNASKED


def make_plan(ground: Ground) -> Plan:
    """By effort, predicted times and the time that is left."""
    context, effort = ground.context, effort_of(ground.context)
    left = context.deadline.left() if context.deadline else None
    heads: list[Rung] = [HeadRung(), ViewsRung(MIRRORED, "flip"), ViewsRung(CROPS, MANY_VIEWS)]
    whole = LinearRung(LQF, context.settings.linearize)
    linear: list[Rung] = [
        whole,
        LinearRung(LQF_CROPS, context.settings.linearize, "best", many_views=True),
        FineTunedRung(averaged=effort == "best"),
        FineTunedRung(LOWER_RATE, "best", averaged=True, lower=True),
        MovedRung(),
        StackRung(),
    ]
    fits = left is None or sum(r.seconds(ground) for r in (*heads[:2], whole)) <= left
    last = None if left is None or effort == "quick" else last_stage(ground)
    before, after = ([], [last]) if fits else ([last], [])  # after LQF: where that takes longer than it seemed to
    every = [r for r in (*heads, *before, linear[0], *after, *linear[1:]) if r is not None]
    rungs = tuple(r for r in every if EFFORTS.index(r.effort) <= EFFORTS.index(effort))
    further = tuple(r for r in every if r not in rungs)
    seconds = {r.name: r.seconds(ground) for r in every}
    stage = context.settings.linearize if last is None or fits else last.stage
    return Plan(rungs, further, effort, seconds, stage, left)


def last_stage(ground: Ground) -> LinearRung | None:
    """The rung that linearises the last stage alone; None where the network cannot be cut, or a stage was given."""
    if ground.context.settings.linearize != "all":
        return None
    name = late_stage(ground.backbone)
    if name is None:
        return None
    return LinearRung(LAST_STAGE, name, share=max(0.02, _share(ground, name)))


def late_stage(backbone: Backbone) -> str | None:
    """Name of the latest stage from which on the network has `LAST_SHARE` of its weights."""
    names = stages(backbone.body)
    whole = _weights(backbone.body)
    for name in reversed(names[1:][-LATEST:]):
        try:
            suffix = split_at(backbone.body, name)[1]
        except LQFError:
            continue
        if _weights(suffix) >= LAST_SHARE * whole:
            return name
    return None


def _weights(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _share(ground: Ground, name: str) -> float:
    """Of a pass through the network, that which takes place from a stage on."""
    context, data = ground.context, ground.data
    prefix, suffix = split_at(ground.backbone.body.to(device=context.device, dtype=context.dtype), name)
    rows = [data.images.own.start + i for i in range(min(ROWS[context.device.type], len(data.images.own)))]
    x = normalize(data.images.batch(rows).to(context.device), data.preprocess, context.dtype)
    with torch.no_grad():
        y = prefix(x)
    return seconds_of_pass(lambda: suffix(y), context.device) / len(x) / ground.pace.row
