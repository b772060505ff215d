"""What a solver returns: the optimum it reached, how it knows, and how exact that is."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.runtime.precision import matmul_precision
from lqf.utils.exactness import Level, how_sure


@dataclass(frozen=True)
class Certificate:
    """Proof of a solve, measured on the data in plain float32 or better.

    Attributes:
        relative_residual: ‖b − Hδ‖ / ‖b‖; with PCG the unit ‖b‖ has the precision of the products.
        error_bound: ‖δ − δ*‖ ≤ ‖b − Hδ‖ / min(μ).
        passes: passes over the data that the solver made, the certificate's own included.
        converged: whether the residual, or the outputs' distance, is at most the tolerance asked for.
        sentence: what happened, for a person.
        output_gap: estimated distance of the training outputs to the optimum's, relative to their norm; None where the
            residual decided.
        output_bound: what that distance cannot exceed, by the residual and the ridge strengths; None likewise.
    """

    relative_residual: float
    error_bound: float
    passes: int
    converged: bool
    sentence: str
    output_gap: float | None = None
    output_bound: float | None = None

    @classmethod
    def of(
        cls,
        problem: QuadraticProblem,
        relative: float,
        b_norm: float,
        *,
        tol: float,
        passes: int,
        output_gap: float | None = None,
        output_bound: float | None = None,
    ) -> Certificate:
        """From a measured relative residual, and the distance of the outputs where that has the tolerance."""
        converged = (relative if output_gap is None else output_gap) <= tol
        verdict = "reached" if converged else "stopped before reaching"
        sure = "" if output_gap is None else how_sure(output_gap, output_bound, lambda v: f"{v:.2g}")
        outputs = "" if output_gap is None else f"outputs within {output_gap:.2g} of the optimum's{sure}, "
        sentence = (
            f"{verdict} the tolerance {tol:.1e}: {outputs}relative residual {relative:.2e} after {passes} passes over "
            "the data"
        )
        lowest = problem.ridge.lowest if problem.model.body.size else problem.ridge.head
        return cls(relative, relative * b_norm / lowest, passes, converged, sentence, output_gap, output_bound)


@dataclass(frozen=True)
class Step:
    """One line of a solver's history: passes so far, seconds so far, relative residual (None where not measured)."""

    passes: int
    seconds: float
    residual: float | None


@dataclass(frozen=True)
class Solution:
    """The minimiser of a `QuadraticProblem`, from any solver.

    Attributes:
        delta: (size,) the head's weights, then the body's.
        ridge: the ridge strengths it was solved for.
        solver: "head", "dense", "pcg", "sgd" or "adam".
        level: "exact" (factorised), "solved" (iterative, see the certificate) or "estimated".
        residuals: (n, C) of all rows there, where the solver knows them.
        ratio: ‖x − x*‖²_A / rᵀB⁻¹r, by which conjugate gradients judged their distance; None where they did not.
        gap: (D,) the body's part of b − Hδ, where conjugate gradients ended.
    """

    delta: Tensor
    ridge: Ridge
    solver: str
    level: Level
    certificate: Certificate
    history: tuple[Step, ...] = field(default=())
    residuals: Tensor | None = field(default=None, repr=False)
    ratio: float | None = None
    gap: Tensor | None = field(default=None, repr=False)


def right_hand_side_norm(problem: QuadraticProblem) -> float:
    """‖b‖, by one pass over the data with TF32 off."""
    with matmul_precision(fast=False):
        return norm(problem.rhs())


def certify(problem: QuadraticProblem, delta: Tensor, *, tol: float, passes: int = 0) -> Certificate:
    """Measure ‖b − Hδ‖/‖b‖ by two passes over the data with TF32 off."""
    b_norm = right_hand_side_norm(problem)
    with matmul_precision(fast=False):
        gap = norm(problem.negative_gradient(delta))
    return Certificate.of(problem, gap / (b_norm or 1.0), b_norm, tol=tol, passes=passes + 2)


def norm(v: Tensor) -> float:
    """‖v‖ in float64."""
    return float(torch.linalg.vector_norm(v, dtype=torch.float64))
