"""Dense dual: the whole kernel K = JJᵀ, from which everything is exact.

Row (i, c) of the dual is output c of training row i. With ridge strengths μ_head and μ_body = ω·μ_head,

    G = K_head + K_body/ω + μ_head I,     e = μ_head G⁻¹ r,     δ = M⁻¹ Jᵀ S e.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.kernels.ridge import KernelRidge
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.precision import matmul_precision
from lqf.solvers.solution import Certificate, Solution, Step, norm, right_hand_side_norm
from lqf.utils.progress import SILENT, Progress


@dataclass(frozen=True)
class Dense:
    """Solve from a factorised kernel and refine until the passes over the data agree with it.

    Attributes:
        tol: relative residual that the certificate must show.
        refinements: how many corrections by residuals measured on the data are tried at most.
    """

    tol: float = 1e-4
    refinements: int = 3

    def solve(
        self,
        problem: QuadraticProblem,
        features: Tensor,
        ridge: KernelRidge,
        *,
        b_norm: float | None = None,
        progress: Progress = SILENT,
    ) -> Solution:
        """δ = M⁻¹Jᵀy, y = Se from the factorisation, then iterative refinement in the dual.

        ``b_norm`` is ‖b‖, where the kernels gave it; otherwise a pass over the data does.

        At the optimum y = S(r − Jδ). What is left, ρ = r − Jδ − S⁻¹y, is the right-hand side of the next correction.
        """
        began, mu = time.perf_counter(), problem.ridge.head
        r = problem.initial_residual(features)
        s = problem.weights[:, None]
        b_norm = right_hand_side_norm(problem) if b_norm is None else b_norm
        rho, y, delta = r, torch.zeros_like(r), problem.zero()
        history: list[Step] = []
        with progress.stage("solving (dense)", total=2 * (self.refinements + 1), unit="passes") as stage:
            for _ in range(self.refinements + 1):
                correction = s * ridge.residual(rho.reshape(-1, 1), mu).view_as(r).to(r)
                with matmul_precision(fast=False):
                    y, delta = y + correction, delta + problem.from_dual(correction)
                    gap, e = problem.measure(delta)
                relative = problem.inputs.world.agree(norm(gap) / (b_norm or 1.0))
                history.append(Step(2 * len(history) + 3, time.perf_counter() - began, relative))
                stage.advance(2, residual=relative)
                if relative <= self.tol:
                    break
                rho = e - y / s
        proof = Certificate.of(problem, relative, b_norm, tol=self.tol, passes=history[-1].passes)
        return Solution(delta, problem.ridge, "dense", "exact", proof, tuple(history))
