"""Leverages of all training rows, from what a fit by iteration knew: its averaged kernel, its refits without folds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from lqf.analysis.leverages import Leverages, strength_by_folds
from lqf.analysis.responses import Responses
from lqf.errors import LQFError
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, TrainingProblem
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
        if self.problem.remembered.averaged is not None or folds is None:
            return self.averaged
        seed, strength = self.problem.context.settings.seed, self._strength(head, folds)
        return Leverages(self.rough, self.problem.quadratic, head, seed, strength, of_head=True)

    @property
    def without_passes(self) -> Leverages:
        """By the averaged kernel where a fit has that of all rows, else `best`, which it has anyway."""
        return self.best if len(self.problem.quadratic.targets) > MOST_SAMPLES else self.averaged

    @cached_property
    def averaged(self) -> Leverages:
        """By the averaged kernel, which passes over the data make where the fit did not keep it."""
        problem, folds = self.problem, self._folds_known
        ridge = problem.remembered.averaged or self._kernels.factorise(problem.ridge)
        known = folds is not None and problem.model.n_outputs > 1
        strength = self._strength(ridge, folds) if known and folds is not None else None
        return Leverages(self.rough, problem.quadratic, ridge, problem.context.settings.seed, strength)

    @property
    def _folds_known(self) -> LeaveOneOut | None:
        """What refits without each fold (or some) have found around this linearisation point; None: there were none."""
        loo, settings = self.model.loo, self.problem.context.settings
        by_refits = settings.loo in ("auto", "folds") and "moved" not in self.model.backbone.spec
        return loo if by_refits and loo is not None and bool(loo.known.any()) else None

    def _strength(self, ridge: KernelRidge, loo: LeaveOneOut) -> float:
        known, data = loo.known, self.problem.data
        outputs, targets = loo.outputs.double()[known], self.problem.quadratic.targets.double()

        def gap(e: Tensor) -> Tensor:
            return (shown(self.model, self.problem, targets.to(e) - e)[known] - outputs).square().sum()

        return strength_by_folds(ridge, self.residuals(), data.folds, gap, self.problem.ridge.head)

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
