"""Preconditioned conjugate gradients with the head eliminated: one product per step, any number of samples."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lqf.curvature import KFAC
from lqf.kernel_ridge import KernelRidge
from lqf.objective import Problem
from lqf.precision import matmul_precision
from lqf.progress import SILENT, Progress
from lqf.solution import Certificate, Solution, Step, norm
from lqf.solvers.cg import Keep, conjugate_gradients
from lqf.solvers.reduced import Reduced

COHERENCE = 3.0
"""The curvature along a direction in which several layers move together exceeds the sum of K-FAC's blocks; scaling the
blocks by this factor before the ridge is added took a fifth fewer products than 1 with ResNet-50 (0.3 and 10: more)."""


@dataclass(frozen=True)
class PCG:
    """Conjugate gradients on the body's normal equations, with an optional K-FAC preconditioner.

    Attributes:
        tol: stop when ‖b − Hδ‖ ≤ tol·‖b‖ (head and body together), confirmed by the true residual.
        max_passes: give up (with a flagged solution) after so many products, true residuals included.
        refresh: recompute the true residual every so many steps.
    """

    tol: float = 1e-2
    max_passes: int = 100
    refresh: int = 10

    def solve(
        self,
        problem: Problem,
        features: Tensor,
        head: KernelRidge,
        preconditioner: KFAC | None = None,
        start: Tensor | None = None,
        *,
        passes: int = 0,
        keep: Keep | None = None,
        progress: Progress = SILENT,
    ) -> Solution:
        """Solve from the body ``start`` (default zero); ``keep`` is called with every new body.

        Args:
            problem: head and body together.
            features: (n, p) of all rows.
            head: the factorised kernel of the head.
            preconditioner: of the body.
            start: (D,) body weights.
            passes: made before, when a solve is resumed.
            keep: e.g. writes checkpoints.
            progress: where to report.
        """
        reduced = Reduced(problem, features, head)
        with matmul_precision(fast=False):
            b_norm = norm(problem.rhs())
            r = reduced.rhs() if start is None else reduced.residual(start)
        damping = problem.ridge.body / COHERENCE
        reached = conjugate_gradients(
            reduced,
            lambda v: v if preconditioner is None else preconditioner.solve(v, damping),
            problem.zero_body() if start is None else start,
            r,
            b_norm,
            tol=self.tol,
            max_passes=self.max_passes,
            passes=passes + 2,
            refresh=self.refresh,
            keep=keep,
            progress=progress,
            agree=problem.inputs.world.agree,
        )
        with matmul_precision(fast=False):
            delta, head_gap = reduced.complete(reached.x)
        relative = (norm(reached.r) ** 2 + norm(head_gap) ** 2) ** 0.5 / (b_norm or 1.0)
        passes = reached.passes + 1
        history = (*reached.history, Step(passes, reached.history[-1].seconds, relative))
        proof = Certificate.of(problem, relative, b_norm, tol=self.tol, passes=passes)
        return Solution(delta, problem.ridge, "pcg", "solved", proof, history)
