"""LQF: the network linearised from a stage on, solved with the head.

The last stage alone comes first where the whole network takes too long: everything before it is computed once. The
whole network in more views goes on from the solution in fewer: its ridge strengths, its curvature and, fold by fold,
its bodies, none of which has seen the fold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.assemble import assemble
from lqf.fitting.checkpoint import State
from lqf.fitting.dense_refits import dense_refits
from lqf.fitting.encoder import Encoder
from lqf.fitting.fitted_model import FittedModel
from lqf.fitting.folds import FOLDS, JUDGED, folds_needed
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.head_folds import NESTED_ROWS
from lqf.fitting.out_of_sample import from_kernels
from lqf.fitting.pose import outlined, planned, with_strengths
from lqf.fitting.refits import Refits, Refitted
from lqf.fitting.rungs.heads import CROPS, HEAD, MANY_VIEWS, MIRRORED, why_not
from lqf.fitting.rungs.pace import head_algebra
from lqf.fitting.rungs.rung import Attempt, Ground, Linear, NotNow
from lqf.fitting.training_problem import TrainingProblem
from lqf.linear.inputs import average_views
from lqf.linear.ridge import Ridge
from lqf.settings import view_count
from lqf.utils.text import rough_duration

LAST_STAGE, LQF, LQF_CROPS = "last stage", "LQF", "LQF, 8 views"
"""Names of the rungs."""
FINISHING = 0.3
"""Share of a rung's time for the solution with all samples, after the refits."""
CONTINUED_PRODUCTS = 2
"""Of a refit that begins with the body of the same fold in fewer views."""


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
            raise NotNow("is for images whose crops help the head")
        for base in bases[:-1]:
            try:
                return self._on(base, ground)
            except NotNow as reason:
                if reason.seconds is None:
                    raise
        return self._on(bases[-1], ground)

    def _on(self, base: Attempt, ground: Ground) -> Attempt:
        """Standing on a head; `NotNow` where that takes too long."""
        head = base.head
        assert head is not None
        state = ground.state if ground.state and ground.state.at.get("rung") == self.name else None
        bodies: tuple[torch.Tensor, ...]
        if state is not None:
            problem, unit = self._resumed(head, state), float(state.at["unit"])
            bodies, outputs = (state.vectors["body"],), state.vectors["outputs"].view(len(ground.data), -1).double()
        else:
            problem, unit = self._continued(head, ground) if self.many_views else self._posed(head, ground)
            refitted = self._refitted(problem, base, ground)
            bodies, outputs = refitted.bodies, average_views(refitted.outputs, problem.data.n_views).double().cpu()
        about = {
            "views": problem.data.preprocess.views,
            "pooling": head.pooling,
            "stage": self.stage,
            "solver": problem.plan.solver if problem.plan else "pcg",
        }
        problem = self._checkpointed(problem, unit, outputs, bodies)
        linear = Linear(problem, unit, bodies if state is None else ())
        start = torch.stack(bodies).mean(0) if bodies else None
        return Attempt(
            self.name,
            outputs,
            lambda: _finished(problem, start, outputs),
            about,
            head,
            linear=linear,
            strengths=base.strengths,
            to_finish=FINISHING * self._seconds(ground, len(head.features)),
        )

    def _bases(self, ground: Ground) -> list[Attempt]:
        """Heads to stand on, the first of which there is time for: for the last stage the best, or those in fewer
        views; for the whole network one in one or two views, or in all where it goes on from these.
        """
        if self.many_views:
            return [ground.attempts[CROPS]] if ground.best_head == CROPS and LQF in ground.attempts else []
        if HEAD not in ground.attempts:
            return []
        if self.name == LAST_STAGE:
            return self._affordable(ground)
        return [ground.attempts[MIRRORED if ground.gains(MIRRORED, over=HEAD) else HEAD]]

    def _affordable(self, ground: Ground) -> list[Attempt]:
        """The best head and those in fewer views, from the first on for which the predicted time suffices."""
        found = [ground.attempts[n] for n in dict.fromkeys((ground.best_head, MIRRORED, HEAD)) if n in ground.attempts]
        alone = ground.context.world.size == 1  # many processes must find the same
        left = ground.context.deadline.left() if alone else math.inf
        fit = [a for a in found if a.head and self._seconds(ground, len(a.head.features)) <= left]
        return found[found.index(fit[0]) :] if fit else found[-1:]

    def _posed(self, head: HeadFit, ground: Ground) -> tuple[TrainingProblem, float]:
        """With strengths chosen in one view (as many rows as samples; the views of an image weigh as one), and the unit
        of their ratio.
        """
        one = ground.attempts[HEAD].head or head
        problem = planned(outlined(_at_stage(head, self.stage)), len(one.features))
        assert problem.plan is not None
        _in_time(problem.plan.seconds, ground)
        ground.context.progress.say(f"{self.name}: {problem.plan.sentence}")
        if one.data.n_views == head.data.n_views or problem.plan.solver == "dense":
            problem = with_strengths(problem)
            assert problem.kernels is not None
            return problem, problem.kernels.unit
        small = with_strengths(replace(outlined(_at_stage(one, self.stage)), plan=problem.plan))
        assert small.choice is not None
        assert small.kernels is not None
        ridge = Ridge(head.choice.mu, small.choice.ridge.body)
        posed = replace(problem, quadratic=problem.quadratic.with_ridge(ridge), choice=small.choice)
        return posed, small.kernels.unit

    def _continued(self, head: HeadFit, ground: Ground) -> tuple[TrainingProblem, float]:
        before = ground.attempts[LQF].linear
        assert before is not None
        earlier = before.problem
        if earlier.plan is None or earlier.plan.solver != "pcg":
            raise NotNow("is for problems that are solved by iteration")
        problem, curvature = outlined(_at_stage(head, self.stage)), earlier.curvature
        ridge = Ridge(head.choice.mu, earlier.ridge.body)
        earlier.release()
        problem = replace(problem, quadratic=problem.quadratic.with_ridge(ridge), choice=earlier.choice)
        return replace(problem, plan=earlier.plan, made=curvature), before.unit

    def _resumed(self, head: HeadFit, state: State) -> TrainingProblem:
        """With the strengths of a checkpoint."""
        problem = planned(outlined(_at_stage(head, self.stage)))
        return replace(problem, quadratic=problem.quadratic.with_ridge(state.ridge))

    def _checkpointed(
        self, problem: TrainingProblem, unit: float, outputs: torch.Tensor, bodies: tuple[torch.Tensor, ...]
    ) -> TrainingProblem:
        """The problem whose solution writes its checkpoints with what has judged it; the first one at once."""
        checkpoint, world = problem.context.checkpoint, problem.context.world
        if checkpoint is None or not bodies:
            return problem
        at = {"rung": self.name, "unit": unit, "ridge": problem.ridge.to_dict(), "at": 0}
        checkpoint = checkpoint.with_more({"outputs": outputs.reshape(-1)}, {"rung": self.name, "unit": unit})
        if world.rank == 0:
            checkpoint.save({"body": torch.stack(bodies).mean(0)}, at, force=True)
        return replace(problem, context=replace(problem.context, checkpoint=checkpoint))

    def _refitted(self, problem: TrainingProblem, base: Attempt, ground: Ground) -> Refitted:
        data = problem.data
        folds = folds_needed(data.folds[:: data.n_views], JUDGED)
        with problem.context.timed("leave-one-out"):
            if problem.plan is not None and problem.plan.solver == "dense":
                return dense_refits(problem, folds, base.strengths)
            shared = (problem.head, problem.point_of, problem.curvature)
            how: dict[str, Any] = {"strengths": base.strengths, "progress": problem.context.progress}
            if self.many_views:
                earlier = ground.attempts[LQF].linear
                assert earlier is not None
                how |= {"starts": earlier.bodies, "products": CONTINUED_PRODUCTS}
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


def _finished(problem: TrainingProblem, start: torch.Tensor | None, outputs: torch.Tensor) -> FittedModel:
    """Solve for all samples, from the mean of what the refits came to."""
    solution = problem.solve(None if start is None else start.to(problem.quadratic.targets))
    loo = _left_out(problem, outputs)
    problem.release()
    return assemble(problem, solution, loo)


def _left_out(problem: TrainingProblem, outputs: torch.Tensor) -> LeaveOneOut | None:
    """Exact from the kernel, or the refits that judged it."""
    data = problem.data
    if problem.plan is not None and problem.plan.solver == "dense" and problem.kernels and problem.choice:
        return from_kernels(problem.kernels, problem.choice, data, None)
    total, known = int(data.folds.max()) + 1, ~outputs.isnan().any(1)
    folds = len(data.folds[:: data.n_views][known].unique())
    which = f"each of {total}" if folds == total else f"{folds} of {total}"
    return data.left_out(outputs, "estimated", f"by refits without {which} folds")
