"""What a fit reports, as JSON values: the solution and how it is known, beside what the fit itself adds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.solvers.solution import Solution


def of_solution(solution: Solution, total_weight: float) -> dict[str, Any]:
    """Solver, weight decays per sample, and the certificate."""
    proof = solution.certificate
    return {
        "solver": solution.solver,
        "level": solution.level,
        "ridge": asdict(solution.ridge),
        "weight_decay": solution.ridge.head / total_weight,
        "body_weight_decay": None if solution.solver == "head" else solution.ridge.body / total_weight,
        "relative_residual": proof.relative_residual,
        "passes": proof.passes,
        "converged": proof.converged,
        "certificate": proof.sentence,
        "history": [asdict(step) for step in solution.history],
        "unknowns": solution.delta.numel(),
    }


def of_leave_one_out(loo: LeaveOneOut | None) -> dict[str, Any]:
    """Error, its standard error, level and note, or nulls."""
    names = ("error", "standard_error", "level", "note")
    return {f"loo_{name}": None if loo is None else getattr(loo, name) for name in names}
