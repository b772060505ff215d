"""Sums of fitted models around one point: as each is linear in its weights, so is the sum.

    Σ w_k f_k(x) = Σ w_k c_k + (Σ w_k V_k) z̃(x) + W̄ J_z(x) (Σ w_k δ_k)

where all share the network, its pooling, the images' preprocessing, the classes and W̄. The temperature goes with the
outputs' scale, 1/β = Σ |w_k|/β_k, so that a multiple of a model has its probabilities; nothing has calibrated it.

A stack is a sum already. Its members are added to those of the same point, and are members of the new stack beside
those that have none; with everything around one point, one model is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from lqf.backbones.state import state_of
from lqf.errors import LQFError
from lqf.fitting import FittedModel, Model, Stack, TrainingTable
from lqf.fitting.fitted_model import SUM
from lqf.fitting.report import FitReport
from lqf.utils.text import listed

POINT_TOL = 1e-6
"""Relative difference of two points that are the same."""


def combined(models: Sequence[Model], weights: Sequence[float]) -> Model:
    """Σ w_k f_k, which answers no question about training samples: it is the optimum of no training problem.

    Args:
        models: of one network and one point; where stacks are among them, of the same classes and preprocessing.
        weights: w_k, finite and not zero.
    """
    for w in weights:
        if not math.isfinite(w) or w == 0:
            raise LQFError(f"a model was multiplied by {w:g}; give a finite number that is not zero")
    own = [m for m in models if isinstance(m, FittedModel)]
    return _around_one_point(own, weights) if len(own) == len(models) else _of_stacks(models, weights)


def _around_one_point(own: Sequence[FittedModel], weights: Sequence[float]) -> FittedModel:
    for a, b in pairwise(own):
        _check(a, b)
    main = max(own, key=lambda m: len(m.delta))  # a head alone changes no weight of the body, around any point
    head = torch.stack([w * m.head.double() for w, m in zip(weights, own, strict=True)]).sum(0)
    bodies = [w * m.delta.double() for w, m in zip(weights, own, strict=True) if not m.head_alone]
    return replace(
        main,
        constant=sum(w * m.constant for w, m in zip(weights, own, strict=True)),
        head=head.to(main.head),
        delta=torch.stack(bodies).sum(0).to(main.delta) if bodies else main.delta,
        beta=1 / sum(abs(w) / m.beta for w, m in zip(weights, own, strict=True)),
        train=_seen(own),
        loo=None,
        report=_report(main.report, own, weights),
        tried={},
        known=None,
    )


# --- stacks -----------------------------------------------------------------------------------------------------------


@dataclass
class _Together:
    """Members around one point, which will be one."""

    name: str
    members: list[FittedModel]
    times: list[float]
    share: float

    def takes(self, member: FittedModel) -> bool:
        """Whether another one has their point."""
        try:
            for mine in self.members:
                _check(mine, member)
        except LQFError:
            return False
        return True


def _of_stacks(models: Sequence[Model], weights: Sequence[float]) -> Model:
    """Σ w_k f_k, member by member. Weights of a stack add up to one: its members take what is left of the scale."""
    _check_stacks(models)
    groups: list[_Together] = []
    size = sum(abs(w) for w in weights)
    for w, model in zip(weights, models, strict=True):
        for name, member, times, share in _terms(model):
            group = next((g for g in groups if g.takes(member)), None)
            if group is None:
                groups.append(group := _Together(_unlike(name, [g.name for g in groups]), [], [], 0.0))
            group.members.append(member)
            group.times.append(w * times)
            group.share += abs(w) * share / size
    members = [_around_one_point(g.members, [t / g.share for t in g.times]) for g in groups]
    if len(members) == 1:
        return _around_one_point(members, [groups[0].share])
    stacks = [m for m in models if isinstance(m, Stack)]
    return replace(
        stacks[0],
        members=tuple(members),
        weights=tuple(g.share for g in groups),
        names=tuple(g.name for g in groups),
        shares=tuple(g.share for g in groups),
        beta=1 / sum(abs(w) / m.beta for w, m in zip(weights, models, strict=True)),
        train=_seen(models),
        loo=None,
        report=_report(stacks[0].report, models, weights),
        tried={},
    )


def _terms(model: Model) -> list[tuple[str, FittedModel, float, float]]:
    """Name, member, weight and share of every member."""
    if isinstance(model, Stack):
        return list(zip(model.names, model.members, model.weights, model.shares, strict=True))
    return [(model.what, model, 1.0, 1.0)]


def _unlike(name: str, others: Sequence[str]) -> str:
    """A name that no other member has."""
    names = (name if k == 1 else f"{name} ({k})" for k in range(1, len(others) + 2))
    return next(n for n in names if n not in others)


def _check_stacks(models: Sequence[Model]) -> None:
    """Refuse stacks that do not answer the same question about the same images; views are the members' own."""
    alike = {
        "classes": lambda m: m.classes,
        "scales of the targets": lambda m: m.alpha,
        "preprocessing": lambda m: replace(m.preprocess, views="none"),
    }
    for a, b in pairwise(models):
        for what, of in alike.items():
            if of(a) != of(b):
                raise LQFError(f"models with different {what} cannot be added")


# --- what must be the same --------------------------------------------------------------------------------------------


def _check(a: FittedModel, b: FittedModel) -> None:
    """Refuse, with the first reason that there is."""
    for what, of in SAME.items():
        mine, theirs = of(a), of(b)
        if mine != theirs:
            shown = f" ({_shown(mine)} and {_shown(theirs)})" if _shown(mine) != _shown(theirs) else ""
            raise LQFError(f"models with different {what}{shown} cannot be added")
    if not _same_state(a, b):
        raise LQFError(
            "the weights of their networks differ, those of a moved network or of a pooling that was reduced for its "
            "training images; such models cannot be added"
        )
    if a.head_alone or b.head_alone:
        return
    if a.stage != b.stage:
        raise LQFError(
            f"one is linearised from `{a.stage}` on and one from `{b.stage}` on; such models cannot be added"
        )
    gap = (a.point.double() - b.point.double()).norm() / a.point.double().norm().clamp_min(1e-300)
    if a.point.shape != b.point.shape or float(gap) > POINT_TOL:
        raise LQFError(
            "their linearisation points differ: the heads through which the body acts on the outputs are others; "
            "fit both with head='random' and one seed, or change one model (tune, add, forget), which keeps its point"
        )


SAME: dict[str, Callable[[FittedModel], Any]] = {
    "networks": lambda m: m.backbone.spec["name"],
    "weights of the network": lambda m: m.backbone.spec.get("state_sha256"),
    "slopes of the activations": lambda m: m.backbone.spec.get("leaky"),
    "poolings": lambda m: m.report.pooling,
    "classes": lambda m: m.classes,
    "scales of the targets": lambda m: m.alpha,
    "views": lambda m: m.preprocess.views,
    "preprocessing": lambda m: m.preprocess,
}
"""By name, what models of one sum have in common."""


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return listed(value, 4)
    if isinstance(value, str) and len(value) < 40:
        return f"`{value}`"
    return f"{value:g}" if isinstance(value, float) else ""


def _same_state(a: FittedModel, b: FittedModel) -> bool:
    """Whether the networks have the same weights, those of a reduced pooling included."""
    if a.backbone.body is b.backbone.body:
        return True
    mine, theirs = state_of(a.backbone.body), state_of(b.backbone.body)
    return mine.keys() == theirs.keys() and all(
        v.shape == theirs[k].shape and torch.equal(v.cpu().float(), theirs[k].cpu().float()) for k, v in mine.items()
    )


# --- what is said of the sum ------------------------------------------------------------------------------------------


def _seen(models: Sequence[Model]) -> TrainingTable:
    """The samples that any of them was fitted on, the first one's label where several know it."""
    rows: dict[tuple[str, str], tuple[Any, ...]] = {}
    for m in models:
        t = m.train
        for row in zip(t.ids, t.labels.tolist(), t.weights.tolist(), t.hashes, strict=True):
            rows.setdefault((row[0], row[3]), row)
    ids, labels, weights, hashes = zip(*rows.values(), strict=True) if rows else ((), (), (), ())
    first = models[0].train
    return replace(
        first,
        ids=tuple(ids),
        labels=np.array(labels, dtype=first.labels.dtype),
        weights=np.array(weights, dtype=first.weights.dtype),
        groups=None,
        hashes=tuple(hashes),
        source=None,
    )


def _report(report: FitReport, models: Sequence[Model], weights: Sequence[float]) -> FitReport:
    whats = [m.report.plan if m.report.solver == SUM else m.what for m in models]
    terms = " + ".join(f"{w:g} · ({what})" for w, what in zip(weights, whats, strict=True))
    return replace(
        report.without_climb(),
        n=len(_seen(models).ids),
        plan=terms,
        solver=SUM,
        level="exact",
        certificate=f"a sum of fitted models, which solves no training problem of its own: {terms}",
        history=(),
        choices=(),
        relative_residual=None,
        output_gap=None,
        output_bound=None,
        passes=0,
        stages={},
        seconds=0.0,
        constraints=None,
        privacy=None,
    )
