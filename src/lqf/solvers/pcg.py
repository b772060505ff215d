"""Preconditioned conjugate gradients on Hδ = b.

Products with H run in the fast precision of the device. Every ``refresh`` steps, and before it stops, the solver replaces
its running residual by the true one, b − Hδ computed from the data in plain float32, so that what it reports is measured
and rounding cannot accumulate. Inner products are in float64. The direction update is the flexible (Polak–Ribière) one,
which tolerates the small inconsistencies between the two precisions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from lqf.curvature import Preconditioner
from lqf.objective import Problem
from lqf.precision import matmul_precision
from lqf.progress import SILENT, Progress
from lqf.solution import Certificate, Solution, Step

class Checkpoint(Protocol):
    """Called with every new iterate and the passes so far; ``last`` when the solve is being interrupted."""

    def __call__(self, delta: Tensor, passes: int, last: bool = False) -> None:
        """Keep it."""
        ...


def dot(a: Tensor, b: Tensor) -> float:
    """⟨a, b⟩ in float64."""
    return float((a.double() * b.double()).sum())


@dataclass(frozen=True)
class PCG:
    """Conjugate gradients with an optional preconditioner.

    Attributes:
        tol: stop when ‖b − Hδ‖ ≤ tol·‖b‖, confirmed by the true residual.
        max_passes: give up (with a flagged solution) after this many passes over the data.
        refresh: recompute the true residual every so many steps.
        fast: allow TF32 inside products.
    """

    tol: float = 1e-2
    max_passes: int = 100
    refresh: int = 10
    fast: bool = True

    def solve(
        self,
        problem: Problem,
        preconditioner: Preconditioner | None = None,
        start: Tensor | None = None,
        *,
        passes: int = 0,
        checkpoint: Checkpoint | None = None,
        progress: Progress = SILENT,
    ) -> Solution:
        """Solve from ``start`` (default zero); ``checkpoint`` is called with every new iterate."""
        began = time.perf_counter()
        b_norm = dot(b := _plain(problem.rhs), b) ** 0.5
        delta = problem.zero() if start is None else start.clone()
        r = b if start is None else _plain(problem.negative_gradient, delta)
        passes += 1 if start is None else 2
        del b
        history = [Step(passes, time.perf_counter() - began, residual := dot(r, r) ** 0.5 / (b_norm or 1.0))]
        p = r_old = None
        rz_old, steps, is_true = 0.0, 0, True
        with progress.stage("solving (PCG)", total=self.max_passes, unit="passes") as stage:
            stage.advance(passes, residual=residual)
            while not (residual <= self.tol and is_true) and passes < self.max_passes:
                z = r if preconditioner is None else preconditioner.solve(r, problem)
                rz = dot(r, z)
                beta = 0.0 if r_old is None else max(0.0, (rz - dot(r_old, z)) / rz_old)
                p = z if p is None else z + beta * p
                r_old, rz_old = r, rz
                try:
                    with matmul_precision(self.fast):
                        hp = problem.product(p)
                except KeyboardInterrupt:
                    if checkpoint:
                        checkpoint(delta, passes, last=True)
                    raise
                step = dot(r, p) / dot(p, hp)
                delta = delta + step * p
                passes, steps = passes + 1, steps + 1
                r, is_true = r - step * hp, False
                residual = dot(r, r) ** 0.5 / b_norm
                if (residual <= self.tol or steps % self.refresh == 0) and passes < self.max_passes:
                    r, is_true = _plain(problem.negative_gradient, delta), True
                    residual, passes = dot(r, r) ** 0.5 / b_norm, passes + 1
                    stage.advance(1)
                history.append(Step(passes, time.perf_counter() - began, residual))
                stage.advance(1, residual=residual)
                if checkpoint:
                    checkpoint(delta, passes)
        if not is_true:
            r = _plain(problem.negative_gradient, delta)
            residual, passes = dot(r, r) ** 0.5 / b_norm, passes + 1
        proof = Certificate.of(problem, residual, b_norm, tol=self.tol, passes=passes)
        return Solution(delta, problem.ridge, "pcg", "solved", proof, tuple(history))


def _plain(function: Callable[..., Tensor], *args: Tensor) -> Tensor:
    with matmul_precision(fast=False):
        return function(*args)
