"""Preconditioned conjugate gradients on the normal equations Hδ = b, or in the dual.

*Primal* (`PCG`): one unknown per weight; K-FAC preconditions; one fused product per step. Works for any number of samples.

*Dual* (`DualPCG`): one unknown per (row, output) pair. With δ = M⁻¹Jᵀy the optimum has y = S(r − Jδ); in y = √S·ŷ

    (I + √S J M⁻¹ Jᵀ √S) ŷ = √S r,

and the Kronecker model of the kernel that the weight decay was chosen with, K ≈ K_head/μ_head ⊗ I + k/μ_body ⊗ Σ, is a much
closer preconditioner than K-FAC. A step costs one backward and one forward-mode pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.curvature import Preconditioner
from lqf.kernels import KroneckerKernel
from lqf.objective import Problem
from lqf.precision import matmul_precision
from lqf.progress import SILENT, Progress
from lqf.solution import Certificate, Solution, Step, norm
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


@dataclass(frozen=True)
class _Dual:
    """(I + √S J M⁻¹ Jᵀ √S) over (n, C)."""

    problem: Problem
    right: Tensor
    product_passes: int = 2
    residual_passes: int = 2

    @property
    def root(self) -> Tensor:
        return self.problem.weights.sqrt()[:, None]

    def weights_of(self, y: Tensor) -> Tensor:
        """δ = M⁻¹Jᵀ√S ŷ."""
        return self.problem.back(self.root * y)

    def product(self, v: Tensor) -> Tensor:
        return v + self.root * self.problem.forward(self.weights_of(v))

    def residual(self, x: Tensor) -> Tensor:
        return self.right - self.product(x)


@dataclass(frozen=True)
class DualPCG:
    """Conjugate gradients in the dual; the certificate is measured in the primal, as for every solver.

    Attributes:
        tol: relative residual of the normal equations that is asked for.
        max_passes: passes over the data after which it gives up.
        refresh: recompute the true residual every so many steps.
    """

    tol: float = 1e-2
    max_passes: int = 100
    refresh: int = 10

    def solve(
        self,
        problem: Problem,
        features: Tensor,
        kernel: KroneckerKernel,
        start: Tensor | None = None,
        *,
        passes: int = 0,
        keep: Keep | None = None,
        progress: Progress = SILENT,
    ) -> Solution:
        """Solve from ŷ = ``start`` (default zero).

        The residual of the dual is what the outputs are still inconsistent by. When it is small enough the residual of the
        normal equations is measured; if that is not yet at the tolerance, the iteration goes on.
        """
        r = problem.initial_residual(features)
        root = problem.weights.sqrt()[:, None]
        operator = _Dual(problem, root * r)
        with matmul_precision(fast=False):
            b_norm = norm(problem.rhs())
            y = torch.zeros_like(r) if start is None else start.view_as(r).to(r)
            rho = operator.right if start is None else operator.residual(y)
        passes += 1 if start is None else 3
        goal = self.tol
        history: tuple[Step, ...] = ()
        solve_kernel = kernel.inverse(problem)
        while True:
            reached = conjugate_gradients(
                operator, solve_kernel, y, rho, norm(operator.right), tol=goal, max_passes=self.max_passes,
                passes=passes, refresh=self.refresh, keep=keep, progress=progress,
            )  # fmt: skip
            history += reached.history
            with matmul_precision(fast=False):
                delta = operator.weights_of(reached.x)
                relative = norm(problem.negative_gradient(delta)) / b_norm
            y, rho, passes = reached.x, reached.r, reached.passes + 2
            if relative <= self.tol or passes + operator.product_passes > self.max_passes:
                break
            goal = 0.7 * goal * min(1.0, self.tol / relative)
        proof = Certificate.of(problem, relative, b_norm, tol=self.tol, passes=passes)
        return Solution(delta, problem.ridge, "pcg", "solved", proof, history)

