"""Really fitting again on changed data, from where the solution is: the point, the folds and the ridge stay."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lqf.analysis.changed_head import ChangedHead
from lqf.analysis.counterfactual import Change
from lqf.curvature import KFAC
from lqf.fitting.reopen import Rebuilt
from lqf.kernels.ridge import KernelRidge
from lqf.linear.problem import QuadraticProblem
from lqf.linear.targets import encode
from lqf.solvers import PCG
from lqf.solvers.solution import Solution


@dataclass(frozen=True)
class Refit:
    """Warm-started solves.

    Attributes:
        rebuilt: the problem as it was fitted.
        problem: the same with the body that passes are made with.
        curvature: K-FAC of the body, which only decides how soon a solve is good.
        tol: relative residual.
        max_passes: after which a solve gives up; its certificate then says so.
    """

    rebuilt: Rebuilt
    problem: QuadraticProblem
    curvature: KFAC | None
    tol: float
    max_passes: int = 200

    def whole(self, start: Tensor | None) -> Solution:
        """The fitted problem itself, to this tolerance."""
        return self._solve(self.problem, self.rebuilt.head.ridge, start)

    def changed(self, change: Change, start: Tensor | None) -> Solution:
        """After a change of weights and labels."""
        rebuilt, v = self.rebuilt, self.problem.inputs.n_views
        labels = rebuilt.fit.rows.labels
        rho = (change.factors(len(labels)) - 1).repeat_interleave(v)
        targets = encode(change.relabelled(labels), len(rebuilt.fitted.classes), rebuilt.fitted.alpha)
        problem = replace(
            self.problem,
            targets=targets.repeat_interleave(v, 0).to(self.problem.targets),
            weights=self.problem.weights * (1 + rho).to(self.problem.weights),
        )
        rows = rho.nonzero()[:, 0]
        head = rebuilt.head.ridge
        if len(rows):
            head = ChangedHead(head, rows, rho[rows], problem.ridge.head)
        return self._solve(problem, head, start)

    def without(self, samples: Tensor, start: Tensor | None) -> Solution:
        """Without some samples."""
        return self.changed(Change(dict.fromkeys(samples.tolist(), 0.0), {}), start)

    def _solve(self, problem: QuadraticProblem, head: KernelRidge, start: Tensor | None) -> Solution:
        solver = PCG(tol=self.tol, max_passes=self.max_passes)
        return solver.solve(problem, self.rebuilt.features, head, self.curvature, start, tf32=False)


def body_of(problem: QuadraticProblem, solution: Solution) -> Tensor:
    """The body's part of a solution."""
    return problem.model.split(solution.delta)[1]


def residuals_of(problem: QuadraticProblem, solution: Solution, rows: Tensor) -> Tensor:
    """e = t − f of some training rows, each through its own head, (k, C) in float64."""
    out = []
    for some in rows.split(problem.inputs.batch_size):
        z, jd = problem.model.jvp(problem.inputs.fetch(some), solution.delta, problem.fold[some])
        out.append((problem.targets[some] - problem.model.base(z, problem.fold[some]) - jd).double())
    return torch.cat(out)
