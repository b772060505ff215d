"""LQF: the network linearised from a stage on, solved with the head.

Ridge strengths of head and stages are chosen in one view, by kernels without each fold (`select_stages`); the first
stages, where they want no change, are not linearised. The whole network is taken in as many of the views in which the
head was fitted as there is time for. Where these are not all, a later rung goes on from that solution with all: its
strengths, its curvature and, fold by fold, its bodies, none of which has seen the fold. The last stage alone stands in
where the whole network takes too long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.assemble import assemble
from lqf.fitting.checkpoint import State
from lqf.fitting.dense_refits import dense_refits
from lqf.fitting.encoder import Encoder
from lqf.fitting.fitted_model import FittedModel
from lqf.fitting.folds import FOLDS, JUDGED, folds_needed
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.head_folds import NESTED_ROWS
from lqf.fitting.pose import given_strengths, outlined, planned_by_size
from lqf.fitting.refits import Refits, Refitted
from lqf.fitting.rungs.heads import CROPS, HEAD, MANY_VIEWS, MIRRORED, why_not
from lqf.fitting.rungs.pace import head_algebra
from lqf.fitting.rungs.rung import Attempt, EarlierAttempt, Ground, Linear, NotNow, repeated
from lqf.fitting.select_shown import Shown, select_shown
from lqf.fitting.training_problem import TrainingProblem
from lqf.fitting.without_fold import nested_choice
from lqf.settings import view_count
from lqf.utils.text import rough_duration

LAST_STAGE, LQF, LQF_CROPS = "last stage", "LQF", "LQF, 8 views"
"""Names of the rungs."""
FINISHING = 0.3
"""Share of a rung's time for the solution with all samples, after the refits."""
CONTINUED_PRODUCTS = 2
"""Of a refit that begins with the body of the same fold in fewer views."""
BEARABLE = 120.0
"""Seconds that more views of every image are worth at the first attempt."""


@dataclass(frozen=True)
class LinearRung:
    """The network linearised from ``stage`` on.

    Attributes:
        name: of the rung.
        stage: "all", or the name of one.
        effort: the least that includes it.
        share: of a pass through the network that takes place from the stage on.
        many_views: whether it goes on from the same stage in fewer views.
    """

    name: str
    stage: str
    effort: str = "standard"
    share: float = 1.0
    many_views: bool = False

    @property
    def kind(self) -> str:
        """Solved anew, or from the solution in fewer views."""
        return "continued" if self.many_views else "last" if self.name == LAST_STAGE else "linear"

    def seconds(self, ground: Ground) -> float:
        if self.many_views:
            views = view_count(ground.attempts[CROPS].about["views"] if CROPS in ground.attempts else MANY_VIEWS)
        else:
            bases = self._bases(ground)
            views = bases[0].head.data.n_views if bases and bases[0].head else 2
        return self._seconds(ground, len(ground.data) * views)

    def _seconds(self, ground: Ground, rows: int) -> float:
        """Over so many rows; the head is factorised again without each fold."""
        head = ground.attempts[HEAD].head if HEAD in ground.attempts else None
        features = head.features.shape[1] if head else ground.backbone.features
        folds = folds_needed(ground.data.folds[:: ground.data.n_views], JUDGED)
        algebra = folds * head_algebra(rows, features, ground.outputs) / (1 + FOLDS * (rows <= NESTED_ROWS))
        return ground.pace.seconds(self.kind, rows, self.share, algebra)

    def attempt(self, ground: Ground) -> Attempt:
        if ground.data.alone:
            raise NotNow("cannot be judged with one image per class")
        if self.name == LAST_STAGE and LQF in ground.attempts:
            raise NotNow("is a part of LQF, which was tried")
        bases = self._bases(ground)
        if not bases:
            why_not(ground)
            raise NotNow("is for images whose crops help the head, and for problems that were solved in fewer views")
        for base in bases[:-1]:
            try:
                return _On(self, base, ground).attempt()
            except NotNow as reason:
                if reason.seconds is None:
                    raise
        return _On(self, bases[-1], ground).attempt()

    def again(self, ground: Ground, tried: EarlierAttempt) -> Attempt:
        return repeated(self, ground, tried)

    def _bases(self, ground: Ground) -> list[Attempt]:
        """Heads to stand on, the first of which there is time for: the best one, or those in fewer views."""
        if self.many_views:
            before = ground.attempts.get(LQF)
            more = before is not None and before.about["views"] != ground.attempts[ground.best_head].about["views"]
            return [ground.attempts[CROPS]] if more and ground.best_head == CROPS else []
        if HEAD not in ground.attempts:
            return []
        found = [ground.attempts[n] for n in dict.fromkeys((ground.best_head, MIRRORED, HEAD)) if n in ground.attempts]
        alone = ground.context.world.size == 1  # many processes must find the same
        left = min(ground.context.deadline.left(), BEARABLE) if alone else math.inf
        fit = [a for a in found if a.head and self._seconds(ground, len(a.head.features)) <= left]
        return found[found.index(fit[0]) :] if fit else found[-1:]


@dataclass(frozen=True)
class _On:
    """A rung on one of the heads that it may stand on.

    Attributes:
        rung: which.
        base: the attempt whose head it is.
        ground: where the climb stands.
    """

    rung: LinearRung
    base: Attempt
    ground: Ground

    @property
    def head(self) -> HeadFit:
        assert self.base.head is not None
        return self.base.head

    def attempt(self) -> Attempt:
        """`NotNow` where that takes too long."""
        state = self.ground.state if self.ground.state and self.ground.state.at.get("rung") == self.rung.name else None
        views = self.head.data.preprocess.views
        bodies: tuple[Tensor, ...]
        if state is not None:
            linear, bodies = self._resumed(state), (state.vectors["body"],)
            shown = Shown(state.at["shown"], state.vectors["outputs"].view(len(self.ground.data), -1).double())
        else:
            linear = self._continued() if self.rung.many_views else self._posed()
            refitted = self._refitted(linear)
            bodies, rows = refitted.bodies, refitted.outputs.unflatten(0, (-1, linear.problem.data.n_views))
            ground, rows = self.ground, rows.double().cpu()
            shown = select_shown(rows, views, ground.context.settings, ground.losses, ground.data.judging)
        problem = self._checkpointed(linear, shown, bodies)
        about = {
            "views": views,
            "shown": shown.views,
            "pooling": self.head.pooling,
            "stage": problem.context.settings.linearize,
            "solver": problem.plan.solver if problem.plan else "pcg",
        }
        start = torch.stack(bodies).mean(0) if bodies else None
        return Attempt(
            self.rung.name,
            shown.outputs,
            lambda: _finished(problem, start, shown),
            about,
            self.head,
            linear=replace(linear, problem=problem, bodies=bodies if state is None else ()),
            strengths=self.base.strengths,
            to_finish=FINISHING * self._expected,
        )

    @property
    def _expected(self) -> float:
        return self.rung._seconds(self.ground, len(self.head.features))

    @cached_property
    def _one(self) -> HeadFit:
        """The head in one view: as many rows as samples; the views of an image weigh as one."""
        return self.ground.attempts[HEAD].head or self.head

    def _posed(self) -> Linear:
        """With strengths chosen in one view."""
        _in_time(self._expected, self.ground)
        given = given_strengths(self.head.context.settings, self.head.data.total_weight)
        if given is not None:
            problem = planned_by_size(outlined(_at_stage(self.head, self.rung.stage)), self._expected)
            return self._said(replace(problem, quadratic=problem.quadratic.with_ridge(given)), 1.0, 1.0)
        choice = nested_choice(outlined(_at_stage(self._one, self.rung.stage)))
        first = choice.first if self.rung.stage == "all" else self.rung.stage
        problem = planned_by_size(outlined(_at_stage(self.head, first)), self._expected)
        ridge = choice.ridge.with_head(choice.factor * self.head.choice.mu)
        problem = replace(problem, quadratic=problem.quadratic.with_ridge(ridge), stages=choice)
        return self._said(problem, choice.unit, choice.factor)

    def _said(self, problem: TrainingProblem, unit: float, factor: float) -> Linear:
        assert problem.plan is not None
        self.ground.context.progress.note(f"{self.rung.name}: {problem.plan.sentence}")
        return Linear(problem, unit, factor=factor)

    def _continued(self) -> Linear:
        before = self.ground.attempts[LQF].linear
        assert before is not None
        earlier = before.problem
        if earlier.plan is None or earlier.plan.solver != "pcg":
            raise NotNow("is for problems that are solved by iteration")
        problem, curvature = outlined(_at_stage(self.head, earlier.context.settings.linearize)), earlier.curvature
        ridge = earlier.ridge.with_head(before.factor * self.head.choice.mu)
        earlier.release()
        problem = replace(problem, quadratic=problem.quadratic.with_ridge(ridge), stages=earlier.stages)
        return replace(before, problem=replace(problem, plan=earlier.plan, made=curvature))

    def _resumed(self, state: State) -> Linear:
        """With the strengths of a checkpoint."""
        problem = planned_by_size(outlined(_at_stage(self.head, state.at["stage"])), self._expected)
        problem = replace(problem, quadratic=problem.quadratic.with_ridge(state.ridge))
        return Linear(problem, float(state.at["unit"]), factor=float(state.at["factor"]))

    def _checkpointed(self, linear: Linear, shown: Shown, bodies: tuple[Tensor, ...]) -> TrainingProblem:
        """The problem whose solution writes its checkpoints with what has judged it; the first one at once."""
        problem = linear.problem
        checkpoint, world = problem.context.checkpoint, problem.context.world
        if checkpoint is None or not bodies:
            return problem
        known = {
            "rung": self.rung.name,
            "unit": linear.unit,
            "factor": linear.factor,
            "shown": shown.views,
            "stage": problem.context.settings.linearize,
        }
        checkpoint = checkpoint.with_more({"outputs": shown.outputs.reshape(-1)}, known)
        if world.rank == 0:
            at = {**known, "ridge": problem.ridge.to_dict(), "at": 0}
            checkpoint.save({"body": torch.stack(bodies).mean(0)}, at, force=True)
        return replace(problem, context=replace(problem.context, checkpoint=checkpoint))

    def _refitted(self, linear: Linear) -> Refitted:
        problem = linear.problem
        data = problem.data
        folds = folds_needed(data.folds[:: data.n_views], JUDGED)
        strengths = [linear.factor * mu for mu in self.base.strengths]
        with problem.context.timed("leave-one-out"):
            if problem.plan is not None and problem.plan.solver == "dense":
                return dense_refits(problem, folds, strengths)
            shared = (problem.head, problem.point_of, problem.curvature)
            how: dict[str, Any] = {"strengths": strengths, "progress": problem.context.progress}
            if self.rung.many_views:
                how |= {"starts": linear.bodies, "products": CONTINUED_PRODUCTS}
            try:
                return Refits(problem.fast, *shared).run(data.folds, folds, **how)
            except FloatingPointError:
                return Refits(problem.measured, *shared).run(data.folds, folds, **how)


def _at_stage(head: HeadFit, stage: str) -> HeadFit:
    """The same features and head, with the network linearised from a stage on."""
    if head.context.settings.linearize == stage:
        return head
    data = replace(head.data, context=head.context.with_settings(linearize=stage))
    return replace(head, encoder=Encoder(data, head.backbone))


def _in_time(seconds: float, ground: Ground) -> None:
    left = ground.context.world.first(ground.context.deadline.left)
    if seconds > left:
        raise NotNow(f"needs about {rough_duration(seconds)}, and {rough_duration(max(left, 0.0))} are left", seconds)


def _finished(problem: TrainingProblem, start: Tensor | None, shown: Shown) -> FittedModel:
    """Solve for all samples, from the mean of what the refits came to."""
    solution = problem.solve(None if start is None else start.to(problem.quadratic.targets))
    loo = _left_out(problem, shown.outputs)
    problem.release()
    return assemble(problem, solution, loo, shown.views)


def _left_out(problem: TrainingProblem, outputs: Tensor) -> LeaveOneOut | None:
    """By the refits that judged it."""
    data = problem.data
    total, known = int(data.folds.max()) + 1, ~outputs.isnan().any(1)
    folds = len(data.folds[:: data.n_views][known].unique())
    which = f"each of {total}" if folds == total else f"{folds} of {total}"
    return data.left_out(outputs, "estimated", f"by refits without {which} folds")
