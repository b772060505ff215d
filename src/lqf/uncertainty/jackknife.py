"""Conformal sets of a fitted model, without a validation set.

What the model without a training sample says about another image needs no refit: f₋S(x) = f(x) − P_S e_S^loo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.analysis import Analysis, Queries, Units
from lqf.data import select_images
from lqf.errors import LQFError
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, Model
from lqf.runtime.memory import available_bytes
from lqf.uncertainty import scores
from lqf.uncertainty.conformal import p_values, smallest_p, voices
from lqf.uncertainty.sets import WAYS, PredictionSets, check_coverage
from lqf.utils import naming
from lqf.utils.exactness import Level
from lqf.utils.text import listed


@dataclass(frozen=True)
class Asked:
    """What is asked of conformal sets.

    Attributes:
        coverage: share of sets that are to hold the right class.
        way: "auto" or one of `WAYS`.
        score: one of `scores.NAMES`.
        by_class: coverage within every class.
    """

    coverage: float = 0.9
    way: str = "auto"
    score: str = "probability"
    by_class: bool = False

    def __post_init__(self) -> None:
        check_coverage(self.coverage)
        for name, value, known in (("way", self.way, ("auto", *WAYS)), ("score", self.score, scores.NAMES)):
            if value not in known:
                raise LQFError(f"{naming.name(name)} is {value!r}; choose one of {listed(known, len(known))}")


def way_for(model: Model) -> str:
    """jackknife+ where the model without every training sample is known exactly, else the jackknife.

    Around a network that was moved with all labels in sight, leaving out flatters; the fit's own folds do not.
    """
    exact = isinstance(model, FittedModel) and model.solved and (model.head_alone or model.report.solver == "dense")
    return "jackknife+" if exact and "moved" not in model.backbone.spec else "jackknife"


def by_model(model: Model, loo: LeaveOneOut, outputs: Tensor, ids: tuple[str, ...], asked: Asked) -> PredictionSets:
    """The jackknife: outputs (Q, C) of the model of all samples against leave-one-out scores."""
    score = scores.score(asked.score, model.beta)
    units = Units.of(model.train.ids, model.train.groups)
    own, weights = _own(loo.outputs, torch.tensor(model.train.labels), units, score, len(model.classes), asked)
    p = p_values(own, score(outputs)[None], units.member, weights).cpu()
    note = "; ".join(n for n in (f"leave-one-out {loo.level}", loo.note) if n)
    return _sets(p, weights, "jackknife", "estimated", note, model, ids, asked)


def by_leaving_out(analysis: Analysis, queries: Queries, asked: Asked, way: str) -> PredictionSets:
    """jackknife+ or jackknife-minmax: every class against the model without each training sample or group."""
    model, method, units = analysis.model, analysis.method, analysis.units
    score, left_out = scores.score(asked.score, model.beta), method.out_of_sample(units, None)
    own, weights = _own(left_out.value, analysis.labels, units, score, len(model.classes), asked)
    found, level, note = [], left_out.level, left_out.note
    for some in _pieces(queries, len(units) * len(model.classes), analysis.device):
        effects = method.effects(some, units, None)
        every = score(method.outputs(some) + effects.value)  # (U, Q, n_classes)
        every = every.amin(0, keepdim=True) if way == "minmax" else every
        found.append(p_values(own, every, units.member, weights).cpu())
        level, note = effects.level, effects.note
    return _sets(torch.cat(found), weights, way, level, note, model, queries.ids, asked)


def _own(
    outputs: Tensor, labels: Tensor, units: Units, score: Callable[[Tensor], Tensor], n_classes: int, asked: Asked
) -> tuple[Tensor, Tensor]:
    """(N,) E_i and (N, n_classes) weights."""
    known = ~outputs.isnan().any(1)
    own = score(outputs).gather(1, labels.long()[:, None])[:, 0]
    weights = voices(units, labels, n_classes, known, by_class=asked.by_class)
    return own.masked_fill(~known, 0.0), weights


def _pieces(queries: Queries, per_image: int, device: torch.device) -> Iterator[Queries]:
    """So many images at a time that what every left-out unit does to them fits into an eighth of the memory."""
    at_once = max(1, available_bytes(device) // (8 * 4 * 8 * per_image))
    if at_once >= len(queries):
        yield queries
        return
    for some in torch.arange(len(queries)).split(at_once):
        yield Queries.of(select_images(queries.images, some.numpy()))


def _sets(
    p: Tensor, weights: Tensor, way: str, level: Level, note: str, model: Model, ids: tuple[str, ...], asked: Asked
) -> PredictionSets:
    return PredictionSets(
        p,
        level,
        note,
        coverage=asked.coverage,
        way=way,
        classes=model.classes,
        ids=ids,
        smallest=smallest_p(weights),
    )
