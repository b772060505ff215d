"""LQF around the network that LQF has found: stepped to its solution, linearised there and solved again.

The network of every fold is stepped to the body that was found without it, so that what judges the rung has not seen
the fold's labels: not in the network, not in the head, not in the solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lqf.errors import LQFError
from lqf.fitting.assemble import assemble
from lqf.fitting.encoder import Encoder
from lqf.fitting.fitted_model import FittedModel
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.pose import outlined
from lqf.fitting.refits import Refits
from lqf.fitting.relinearize import stepped_encoder
from lqf.fitting.rungs.linear import LQF, LQF_CROPS
from lqf.fitting.rungs.rung import Attempt, Ground, Linear, NotNow
from lqf.fitting.select_shown import Shown, select_shown
from lqf.fitting.strengths import Strengths, Used
from lqf.fitting.training_problem import Moves, TrainingProblem

MOVED = "LQF, moved"
DOUBT = 1.0
"""Standard errors by which LQF may seem worse than the head and is moved all the same."""
UNIT_ROWS = 64
"""Rows by which the size of the body's kernel around the new point is measured."""


@dataclass(frozen=True)
class MovedRung:
    """One Gauss–Newton step further."""

    name: str = MOVED
    effort: str = "best"
    kind: str = "moved"

    def seconds(self, ground: Ground) -> float:
        base = _base(ground)
        views = base.head.data.n_views if base and base.head else 2
        return ground.pace.seconds(self.kind, len(ground.data) * views)

    def attempt(self, ground: Ground) -> Attempt:
        base = _base(ground)
        linear = base.linear if base else None
        if base is None or base.head is None or linear is None:
            raise NotNow("is for networks that LQF was tried with")
        if not ground.gain(base.outputs, ground.attempts[ground.best_head].outputs).counts(DOUBT):
            raise NotNow("is for networks whose LQF is no worse than the head")
        if not linear.bodies:
            raise NotNow("is for problems that are solved by iteration")
        model = ground.models.get(base.name) or base.finish()
        assert isinstance(model, FittedModel)
        try:
            problem = _around(linear, model)
            rows = _refitted(linear, problem, [mu / base.head.choice.mu for mu in base.strengths])
        except LQFError as error:  # the network does not follow its linear model
            raise NotNow(str(error).partition(";")[0]) from error
        shown = select_shown(rows, base.about["views"], ground.context.settings, ground.losses)
        about = {**base.about, "shown": shown.views, "moved": True}
        moved = Linear(problem, linear.unit, factor=linear.factor)
        return Attempt(self.name, shown.outputs, lambda: _finished(problem, shown), about, base.head, linear=moved)


def _base(ground: Ground) -> Attempt | None:
    """The linearised network in the most views."""
    return next((ground.attempts[name] for name in (LQF_CROPS, LQF) if name in ground.attempts), None)


def _around(linear: Linear, model: FittedModel) -> TrainingProblem:
    """The problem at the weights to which the solution moves the network."""
    before = linear.problem
    used, first = before.used, before.head_fit
    strengths = Strengths.of(used, first.acting.head.scale, before.head.scale, linear.unit)
    moves = Moves(first.backbone, first.choice, strengths, before.choices, (used,))
    encoder = stepped_encoder(before, model.delta.to(before.quadratic.targets))
    settings, total = before.context.settings, before.data.total_weight
    at = HeadFit.at(encoder, first.pooling, lambda scale: strengths.point_at(scale, settings, total))
    outline = replace(outlined(at), plan=before.plan, moves=moves)
    outline = replace(outline, quadratic=outline.quadratic.with_ridge(before.ridge))  # by which stages count
    kernels = outline.averaged_kernels(max(8, UNIT_ROWS // before.data.n_views))
    ridge = strengths.at(at.head.scale, kernels.unit, settings, total)
    problem = replace(outline, quadratic=outline.quadratic.with_ridge(ridge))
    return replace(problem, moves=replace(moves, used=(used, problem.used)))


def _refitted(linear: Linear, problem: TrainingProblem, factors: Sequence[float]) -> Tensor:
    """(N, V, C) out of sample: every fold's network is the one that its own refit has moved.

    ``factors``: strength of the head without each fold, over that with all samples.
    """
    data, context, used, curvature = problem.data, problem.context, problem.used, problem.curvature
    out = torch.full_like(problem.quadratic.targets, torch.nan)
    with context.timed("leave-one-out"), context.progress.stage("moved refits", len(linear.bodies), "folds") as stage:
        for k, body in enumerate(linear.bodies):
            encoder = stepped_encoder(linear.problem, body.to(out))
            part = _posed(encoder, problem, used)
            refits = Refits(part.fast, part.head, part.point_of, curvature)
            refits.without(data.folds, k, out, strength=factors[k] * used.head)
            part.encoder.engine.clear()
            stage.advance(1)
    return out.unflatten(0, (-1, data.n_views)).double().cpu()


def _posed(encoder: Encoder, like: TrainingProblem, used: Used) -> TrainingProblem:
    outline = outlined(HeadFit.at(encoder, like.head_fit.pooling, used.point))
    return replace(outline, quadratic=outline.quadratic.with_ridge(used.ridge), plan=like.plan, moves=like.moves)


def _finished(problem: TrainingProblem, shown: Shown) -> FittedModel:
    solution = problem.solve()
    note = "by refits that begin at the pretrained weights"
    loo = problem.data.left_out(shown.outputs, "estimated", note)
    problem.release()
    return assemble(problem, solution, loo, shown.views)
