"""Leverages of all training rows, from what a fit by iteration knew: its averaged kernel, its refits without folds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from lqf.analysis.leverages import Leverages
from lqf.analysis.responses import Responses
from lqf.errors import LQFError
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, TrainingProblem
from lqf.fitting.leverage_strength import strength_by_refits
from lqf.kernels.ridge import KernelRidge
from lqf.kernels.tangent import Kernels
from lqf.linear.inputs import average_views
from lqf.runtime.memory import available_bytes
from lqf.solvers.planner import MOST_SAMPLES


@dataclass(eq=False)
class KnownLeverages:
    """Of one model.

    Attributes:
        model: fitted.
        problem: its training problem.
        residuals: gives (n, C) residuals of the solution as it was fitted.
        rough: gives solves for random sums of outputs, where a trace has to be measured.
    """

    model: FittedModel
    problem: TrainingProblem
    residuals: Callable[[], Tensor]
    rough: Callable[[], Responses]

    @cached_property
    def best(self) -> Leverages:
        """By the averaged kernel, if the fit knew it; where refits can tell its strength the head's own will do."""
        folds, head = self._folds_known, self.problem.head.ridge
        if self.problem.remembered.averaged is not None:
            return self.averaged
        strength = self._strength("head", head, folds)
        if strength is None:
            return self.averaged
        seed = self.problem.context.settings.seed
        return Leverages(self.rough, self.problem.quadratic, head, seed, strength, of_head=True)

    @property
    def without_passes(self) -> Leverages:
        """By the averaged kernel where a fit has that of all rows, else `best`, which it has anyway; so it is once
        samples were added.
        """
        known = self.problem.remembered
        grown = known.averaged is None and "head" in known.strengths and self._folds_known is None
        return self.best if grown or len(self.problem.quadratic.targets) > MOST_SAMPLES else self.averaged

    @cached_property
    def averaged(self) -> Leverages:
        """By the averaged kernel, which passes over the data make where the fit did not keep it."""
        problem, folds = self.problem, self._folds_known
        ridge = problem.remembered.averaged or self._kernels.factorise(problem.ridge)
        strength = self._strength("averaged", ridge, folds) if problem.model.n_outputs > 1 else None
        return Leverages(self.rough, problem.quadratic, ridge, problem.context.settings.seed, strength)

    @property
    def _folds_known(self) -> LeaveOneOut | None:
        """What refits without each fold (or some) have found around this linearisation point; None: there were none."""
        loo = self.model.loo
        return loo if loo is not None and loo.by_refits and "moved" not in self.model.backbone.spec else None

    def _strength(self, name: str, kernel: KernelRidge, loo: LeaveOneOut | None) -> float | None:
        """By the refits, or of a changed model by those of its fit; None where there were none."""
        if loo is not None:
            return strength_by_refits(self.problem, kernel, self.residuals(), loo, self.model.preprocess.n_views)
        ratio = self.problem.remembered.strengths.get(name)
        return None if ratio is None else ratio * self.problem.ridge.head

    @property
    def _kernels(self) -> Kernels:
        """Averaged over the outputs."""
        n, free = len(self.problem.quadratic.targets), available_bytes(self.problem.context.device)
        if 5 * 8 * n * n > free:
            raise LQFError(
                f"leverages of all {n} rows need {40 * n * n / 2**30:.1f} GB and {free / 2**30:.1f} GB are free; "
                "name the training samples that you ask about"
            )
        return self.problem.averaged


def shown(model: FittedModel, problem: TrainingProblem, rows: Tensor) -> Tensor:
    """Outputs of training rows (n, C) as those of a prediction (N, C), on the CPU."""
    return average_views(rows, problem.data.n_views, model.preprocess.n_views).cpu()
