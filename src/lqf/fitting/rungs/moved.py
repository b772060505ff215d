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
from lqf.fitting.rungs.rung import Attempt, EarlierAttempt, Ground, Linear, NotNow, repeated
from lqf.fitting.select_shown import Shown, select_shown
from lqf.fitting.strengths import Strengths
from lqf.fitting.training_problem import Moves, TrainingProblem

MOVED = "LQF, moved"
STEPS = 2
UNIT_ROWS = 64
"""Rows by which the size of the body's kernel around the new point is measured."""


@dataclass(frozen=True)
class MovedRung:
    """`STEPS` Gauss–Newton steps further."""

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
        if not ground.gain(base.outputs, ground.attempts[ground.best_head].outputs).counts():
            raise NotNow("is for networks whose LQF gains over the head")
        if not linear.bodies:
            raise NotNow("is for problems that are solved by iteration")
        model = ground.models.get(base.name) or base.finish()
        assert isinstance(model, FittedModel)
        try:
            problems = _along(linear, model)
            rows = _refitted(linear, problems, [mu / base.head.choice.mu for mu in base.strengths])
        except LQFError as error:  # the network does not follow its linear model
            raise NotNow(str(error).partition(";")[0]) from error
        last = problems[-1]
        shown = select_shown(rows, base.about["views"], ground.context.settings, ground.losses, ground.data.judging)
        about = {**base.about, "shown": shown.views, "moved": len(problems)}
        moved = Linear(last, linear.unit, factor=linear.factor)
        return Attempt(self.name, shown.outputs, lambda: _finished(last, shown), about, base.head, linear=moved)

    def again(self, ground: Ground, tried: EarlierAttempt) -> Attempt:
        return repeated(self, ground, tried)


def _base(ground: Ground) -> Attempt | None:
    """The linearised network in the most views."""
    return next((ground.attempts[name] for name in (LQF_CROPS, LQF) if name in ground.attempts), None)


def _along(linear: Linear, model: FittedModel) -> list[TrainingProblem]:
    """The problems at the weights to which one solution after the other moves the network; the last is not solved."""
    first = linear.problem
    under = first.head_fit.acting.head.scale
    strengths = Strengths.of(first.used, under, first.head.scale, linear.unit)
    moves = Moves(first.head_fit.backbone, first.head_fit.choice, strengths, first.choices, (first.used,))
    problems: list[TrainingProblem] = []
    here, body = first, model.delta.to(first.quadratic.targets)
    for step in range(STEPS):
        if step > 0:
            body = here.body(here.solve())
            _leave(here)
        here = _around(stepped_encoder(here, body), first, moves)
        moves = replace(moves, used=(*moves.used, here.used))
        here = replace(here, moves=moves)
        problems.append(here)
    return problems


def _around(encoder: Encoder, first: TrainingProblem, moves: Moves) -> TrainingProblem:
    """The problem at the weights of a moved network, with strengths of the same size relative to its kernels."""
    settings, total, strengths = first.context.settings, first.data.total_weight, moves.strengths
    pooling = first.head_fit.pooling
    at = HeadFit.at(encoder, pooling, lambda scale: strengths.point_at(scale, settings, total))
    outline = replace(outlined(at), plan=first.plan)
    outline = replace(outline, quadratic=outline.quadratic.with_ridge(first.ridge))  # by which stages count
    kernels = outline.averaged_kernels(max(8, UNIT_ROWS // first.data.n_views))
    ridge = strengths.at(at.head.scale, kernels.unit, settings, total)
    return replace(outline, quadratic=outline.quadratic.with_ridge(ridge))


def _refitted(linear: Linear, problems: Sequence[TrainingProblem], factors: Sequence[float]) -> Tensor:
    """(N, V, C) out of sample: every fold's network is the one that its own refits have moved.

    ``factors``: strength of the head without each fold, over that with all samples.
    """
    last = problems[-1]
    data, context = last.data, last.context
    out = torch.full_like(last.quadratic.targets, torch.nan)
    with context.timed("leave-one-out"), context.progress.stage("moved refits", len(linear.bodies), "folds") as stage:
        for k, body in enumerate(linear.bodies):
            here = linear.problem
            for like in problems:
                curvature = like.curvature
                part = _posed(stepped_encoder(here, body.to(out)), like)
                refits = Refits(part.fast, part.head, part.point_of, curvature)
                body = refits.without(data.folds, k, out, strength=factors[k] * like.ridge.head)
                _leave(part)
                here = part
            stage.advance(1)
    return out.unflatten(0, (-1, data.n_views)).double().cpu()


def _leave(problem: TrainingProblem) -> None:
    """Give up what was recorded for its passes."""
    problem.encoder.engine.clear()
    problem.head_fit.encoder.engine.clear()


def _posed(encoder: Encoder, like: TrainingProblem) -> TrainingProblem:
    used = like.used
    outline = outlined(HeadFit.at(encoder, like.head_fit.pooling, used.point))
    return replace(outline, quadratic=outline.quadratic.with_ridge(used.ridge), plan=like.plan, moves=like.moves)


def _finished(problem: TrainingProblem, shown: Shown) -> FittedModel:
    solution = problem.solve()
    note = "by refits that begin at the pretrained weights"
    loo = problem.data.left_out(shown.outputs, "estimated", note)
    problem.release()
    return assemble(problem, solution, loo, shown.views)
