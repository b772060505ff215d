"""Really fitting again on changed data, from where the solution is: the point, the folds and the ridge stay."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lqf.analysis.changed_head import ChangedHead
from lqf.analysis.counterfactual import Change
from lqf.curvature import KFAC
from lqf.fitting import TrainingProblem
from lqf.kernels.ridge import KernelRidge
from lqf.linear.problem import QuadraticProblem
from lqf.linear.targets import encode
from lqf.solvers import PCG
from lqf.solvers.solution import Solution


@dataclass(frozen=True)
class Refit:
    """Warm-started solves.

    Attributes:
        problem: as it was fitted.
        curvature: K-FAC of the body, which only decides how soon a solve is good.
        tol: relative residual.
        max_passes: after which a solve gives up; its certificate then says so.
    """

    problem: TrainingProblem
    curvature: KFAC | None
    tol: float
    max_passes: int = 200

    def whole(self, start: Tensor | None) -> Solution:
        """The fitted problem itself, to this tolerance."""
        return self._solve(self.problem.measured, self.problem.head.ridge, start)

    def changed(self, change: Change, start: Tensor | None) -> Solution:
        """After a change of weights and labels."""
        problem, head = self._after(change)
        return self._solve(problem, head, start)

    def posed(self, change: Change, e: Tensor) -> tuple[QuadraticProblem, KernelRidge, Tensor]:
        """The problem after a change, its head, and what the change does to the gradient at residuals e (n, C).

        That is Σ J_iᵀu_i with u = s'(e + Δt) − s e (n, C), which is zero but in the rows that change.
        """
        problem, head = self._after(change)
        s, after = self.problem.quadratic.weights.double()[:, None], problem.weights.double()[:, None]
        moved = (problem.targets - self.problem.quadratic.targets).double()
        return problem, head, after * (e + moved) - s * e

    def _after(self, change: Change) -> tuple[QuadraticProblem, KernelRidge]:
        data, measured, head = self.problem.data, self.problem.measured, self.problem.head.ridge
        rho = (change.factors(len(data)) - 1).repeat_interleave(data.n_views)
        targets = encode(change.relabelled(data.labels), len(data.classes), self.problem.context.settings.alpha)
        problem = replace(
            measured,
            targets=targets.repeat_interleave(data.n_views, 0).to(measured.targets),
            weights=measured.weights * (1 + rho).to(measured.weights),
        )
        rows = rho.nonzero()[:, 0]
        if len(rows):
            head = ChangedHead(head, rows, rho[rows], problem.ridge.head)
        return problem, head

    def without(self, samples: Tensor, start: Tensor | None) -> Solution:
        """Without some samples."""
        return self.changed(Change(dict.fromkeys(samples.tolist(), 0.0), {}), start)

    def _solve(self, problem: QuadraticProblem, head: KernelRidge, start: Tensor | None) -> Solution:
        solver = PCG(tol=self.tol, max_passes=self.max_passes)
        return solver.solve(problem, self.problem.features, head, self.curvature, start, tf32=False)


def residuals_of(problem: QuadraticProblem, solution: Solution, rows: Tensor) -> Tensor:
    """e = t − f of some training rows, each through its own head, (k, C) in float64."""
    every = torch.zeros_like(problem.targets, dtype=torch.float64)
    mine = problem.inputs.among_own(rows)
    for some in mine.split(problem.inputs.batch_size) if len(mine) else ():
        z, jd = problem.model.jvp(problem.inputs.fetch(some), solution.delta, problem.fold[some])
        every[some] = (problem.targets[some] - problem.model.base(z, problem.fold[some]) - jd).double()
    return problem.inputs.world.all_reduce_(every[rows])
