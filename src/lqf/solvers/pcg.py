"""Preconditioned conjugate gradients with the head eliminated: one product per step, any number of samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from lqf.curvature import KFAC
from lqf.kernels.ridge_at import Elimination
from lqf.linear.problem import QuadraticProblem
from lqf.solvers.block_cg import conjugate_gradients
from lqf.solvers.schur import SchurComplement
from lqf.solvers.solution import Certificate, Solution, norm
from lqf.utils.progress import SILENT, Progress

COHERENCE = 3.0
"""The curvature along a direction in which several layers move together exceeds the sum of K-FAC's blocks; scaling the
blocks by this factor before the ridge is added took a fifth fewer products than 1 with ResNet-50 (0.3 and 10: more)."""

PLAIN_STEPS = 3
"""Steps without a preconditioner from which on the error is estimated."""
REDUCTION = 0.25
"""Without the head most of ‖b‖ is already explained; a loose tolerance must not be met by the head alone."""


class KeepBody(Protocol):
    """Called with every new body (D,) and the passes so far; ``last`` when the solve is being interrupted."""

    def __call__(self, x: Tensor, passes: int, last: bool = False) -> None:
        """Keep it."""
        ...


@dataclass(frozen=True)
class PCG:
    """Conjugate gradients on the body's normal equations, with an optional K-FAC preconditioner.

    Attributes:
        tol: stop when ‖b − Hδ‖ ≤ tol·‖b‖ (head and body together), and a quarter of what it is with the best head and
            no body, confirmed by the true residual.
        output_tol: in place of that, stop when the training outputs are so near to the optimum's, relative to their
            norm: as the energy norm of the error, estimated from the true residual (`lqf.solvers.energy`), bounds it.
        max_passes: give up (with a flagged solution) after so many products, true residuals included.
        refresh: recompute the true residual every so many steps.
        measure_start: whether the residual of a given start is the true one, or that of one more fast product; the last
            one is true in any case.
    """

    tol: float = 1e-2
    output_tol: float | None = None
    max_passes: int = 100
    refresh: int = 20
    measure_start: bool = True

    def solve(
        self,
        problem: QuadraticProblem,
        features: Tensor,
        head: Elimination,
        preconditioner: KFAC | None = None,
        start: Tensor | None = None,
        *,
        fast: QuadraticProblem | None = None,
        tf32: bool = True,
        passes: int = 0,
        keep: KeepBody | None = None,
        progress: Progress = SILENT,
    ) -> Solution:
        """Solve from the body ``start`` (default zero); ``keep`` is called with every new body.

        Args:
            problem: head and body together.
            features: (n, p) of all rows.
            head: the factorised kernel of the head.
            preconditioner: of the body.
            start: (D,) body weights.
            fast: the same problem with a faster body, for the products.
            tf32: whether the products may use TF32 on a GPU.
            passes: made before, when a solve is resumed.
            keep: e.g. writes checkpoints.
            progress: where to report.
        """
        schur = SchurComplement(problem, features, head, fast, tf32=tf32)
        try:
            return self._solve(schur, preconditioner, start, passes, keep, progress)
        except FloatingPointError:
            if fast is None:
                raise
            progress.say("the fast products left the range of their floating-point type; beginning again without them")
            return self._solve(
                SchurComplement(problem, features, head, tf32=tf32), preconditioner, start, passes, keep, progress
            )

    def _solve(
        self,
        schur: SchurComplement,
        preconditioner: KFAC | None,
        start: Tensor | None,
        passes: int,
        keep: KeepBody | None,
        progress: Progress,
    ) -> Solution:
        problem = schur.problem
        b, b_norm, by_outputs = schur.rhs(), schur.unit(), self.output_tol is not None
        size = torch.tensor([b_norm], dtype=torch.float64, device=b.device)
        reached = conjugate_gradients(
            schur,
            body_preconditioner(preconditioner, problem),
            (problem.zero_body() if start is None else start)[None],
            self._first(schur, b, start)[None],
            size,
            tol=self.output_tol or min(self.tol, REDUCTION * norm(b) / (b_norm or 1.0)),
            energy=torch.full_like(size, schur.output_norm()) if by_outputs else None,
            least=trusted_from(preconditioner),
            ridge=problem.body_ridge,
            max_passes=self.max_passes,
            passes=passes + (1 if start is None else 2),
            refresh=self.refresh,
            is_true=start is not None and self.measure_start,
            keep=keep and (lambda x, passes, last=False: keep(x[0], passes, last)),
            progress=progress,
            agree=problem.inputs.world.agree,
        )
        delta, head_gap, e = schur.complete(reached.x[0])
        relative = (norm(reached.r) ** 2 + norm(head_gap) ** 2) ** 0.5 / (b_norm or 1.0)
        history = (*reached.history[:-1], replace(reached.history[-1], residual=relative))
        gap, bound, ratio = (first(t) for t in (reached.energy, reached.bound, reached.ratio))
        proof = Certificate.of(
            problem,
            relative,
            b_norm,
            tol=self.output_tol or self.tol,
            passes=reached.passes,
            output_gap=gap,
            output_bound=bound,
        )
        return Solution(delta, problem.ridge, "pcg", "solved", proof, history, e, ratio, reached.r[0])

    def _first(self, schur: SchurComplement, b: Tensor, start: Tensor | None) -> Tensor:
        """The residual to begin with."""
        if start is None:
            return b
        return schur.residual(start) if self.measure_start else b - schur.product(start)


def first(of_each: Tensor | None) -> float | None:
    """Of the first right-hand side."""
    return None if of_each is None else float(of_each[0])


def trusted_from(preconditioner: KFAC | None) -> int:
    """Steps from which on the error is estimated (`lqf.solvers.energy`)."""
    return PLAIN_STEPS if preconditioner is None else 1


def body_preconditioner(curvature: KFAC | None, problem: QuadraticProblem) -> Callable[[Tensor], Tensor]:
    """(B + M/COHERENCE)⁻¹ of the rows of a matrix (k, D).

    Without curvature M⁻¹, in units of the body's own strength: the rows themselves where all weights have the same.
    """
    ridge = problem.ridge
    if curvature is not None:
        softer = ridge.scaled(1 / COHERENCE)
        return lambda r: torch.stack([curvature.solve(one, softer) for one in r])
    return (lambda r: r / (problem.body_ridge / ridge.body)) if ridge.stages else (lambda r: r)
