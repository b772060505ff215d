"""Preconditioned conjugate gradients on Hδ = b: one fused product per step, any number of samples."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lqf.curvature import Preconditioner
from lqf.objective import Problem
from lqf.precision import matmul_precision
from lqf.progress import SILENT, Progress
from lqf.solution import Certificate, Solution, norm
from lqf.solvers.cg import Keep, conjugate_gradients


@dataclass(frozen=True)
class _Primal:
    problem: Problem
    product_passes: int = 1
    residual_passes: int = 1

    def product(self, v: Tensor) -> Tensor:
        return self.problem.product(v)

    def residual(self, x: Tensor) -> Tensor:
        return self.problem.negative_gradient(x)


@dataclass(frozen=True)
class PCG:
    """Conjugate gradients on Hδ = b with an optional K-FAC preconditioner.

    Attributes:
        tol: stop when ‖b − Hδ‖ ≤ tol·‖b‖, confirmed by the true residual.
        max_passes: give up (with a flagged solution) after this many passes over the data.
        refresh: recompute the true residual every so many steps.
    """

    tol: float = 1e-2
    max_passes: int = 100
    refresh: int = 10

    def solve(
        self,
        problem: Problem,
        preconditioner: Preconditioner | None = None,
        start: Tensor | None = None,
        *,
        passes: int = 0,
        keep: Keep | None = None,
        progress: Progress = SILENT,
    ) -> Solution:
        """Solve from ``start`` (default zero); ``keep`` is called with every new iterate."""
        with matmul_precision(fast=False):
            b = problem.rhs()
            r = b if start is None else problem.negative_gradient(start)
        reached = conjugate_gradients(
            _Primal(problem),
            lambda v: v if preconditioner is None else preconditioner.solve(v, problem),
            problem.zero() if start is None else start,
            r,
            b_norm := norm(b),
            tol=self.tol,
            max_passes=self.max_passes,
            passes=passes + (1 if start is None else 2),
            refresh=self.refresh,
            keep=keep,
            progress=progress,
        )
        proof = Certificate.of(problem, norm(reached.r) / b_norm, b_norm, tol=self.tol, passes=reached.passes)
        return Solution(reached.x, problem.ridge, "pcg", "solved", proof, reached.history)
