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
from lqf.fitting.rungs.linear import LAST_STAGE
from lqf.fitting.rungs.rung import Attempt, Ground, Linear, NotNow
from lqf.fitting.strengths import Strengths, Used
from lqf.fitting.training_problem import Moves, TrainingProblem
from lqf.linear.inputs import average_views

MOVED = "LQF, moved"
UNIT_ROWS = 64
"""Rows by which the size of the body's kernel around the new point is measured."""


@dataclass(frozen=True)
class MovedRung:
    """One Gauss–Newton step further."""

    name: str = MOVED
    effort: str = "best"
    kind: str = "moved"

    def seconds(self, ground: Ground) -> float:
        base = ground.attempts.get(ground.best)
        views = base.head.data.n_views if base and base.head else 2
        return ground.pace.seconds(self.kind, len(ground.data) * views)

    def attempt(self, ground: Ground) -> Attempt:
        base = ground.attempts.get(ground.best)
        linear = base.linear if base else None
        if base is None or base.head is None or linear is None or base.name == LAST_STAGE:
            raise NotNow("is for networks whose LQF gains")
        if not linear.bodies:
            raise NotNow("is for problems that are solved by iteration")
        model = ground.models[ground.best]
        assert isinstance(model, FittedModel)
        try:
            problem = _around(linear, model)
            outputs = _refitted(linear, problem, [mu / base.head.choice.mu for mu in base.strengths])
        except LQFError as error:  # the network does not follow its linear model
            raise NotNow(str(error).partition(";")[0]) from error
        about = {**base.about, "moved": True}
        moved = Linear(problem, linear.unit)
        return Attempt(self.name, outputs, lambda: _finished(problem, outputs), about, base.head, linear=moved)


def _around(linear: Linear, model: FittedModel) -> TrainingProblem:
    """The problem at the weights to which the solution moves the network."""
    before = linear.problem
    used, head = before.used, before.head.ridge
    strengths = Strengths(used.point / head.scale, used.head / head.scale, used.body / used.head / linear.unit)
    first = before.head_fit
    moves = Moves(first.backbone, first.choice, strengths, before.choices, (used,))
    encoder = stepped_encoder(before, model.delta.to(before.quadratic.targets))
    settings, total = before.context.settings, before.data.total_weight
    at = HeadFit.at(encoder, first.pooling, lambda kernel: strengths.point_at(kernel, settings, total))
    outline = replace(outlined(at), plan=before.plan, moves=moves)
    kernels = outline.averaged_kernels(max(8, UNIT_ROWS // before.data.n_views))
    ridge = strengths.at(at.head.ridge, kernels, settings, total)
    problem = replace(outline, quadratic=outline.quadratic.with_ridge(ridge))
    return replace(problem, moves=replace(moves, used=(used, problem.used)))


def _refitted(linear: Linear, problem: TrainingProblem, factors: Sequence[float]) -> Tensor:
    """(N, C) out of sample: every fold's network is the one that its own refit has moved.

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
    return average_views(out, data.n_views).double().cpu()


def _posed(encoder: Encoder, like: TrainingProblem, used: Used) -> TrainingProblem:
    outline = outlined(HeadFit.at(encoder, like.head_fit.pooling, used.point))
    return replace(outline, quadratic=outline.quadratic.with_ridge(used.ridge), plan=like.plan, moves=like.moves)


def _finished(problem: TrainingProblem, outputs: Tensor) -> FittedModel:
    solution = problem.solve()
    note = "by refits that begin at the pretrained weights"
    loo = problem.data.left_out(outputs, "estimated", note)
    problem.release()
    return assemble(problem, solution, loo)
