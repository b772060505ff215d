"""The optimum of a changed problem, by the way in which the model was solved, and how far from it the answer can be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from lqf.changes.samples.correct import Before, corrected
from lqf.fitting import FittedModel, TrainingProblem
from lqf.fitting.assemble import head_solution
from lqf.linear import head_products
from lqf.solvers.planner import Plan, jacobian_bytes
from lqf.solvers.solution import Solution, norm


@dataclass(frozen=True)
class Distance:
    """What is measured on the training data of the changed problem.

    Attributes:
        residual: ‖Hδ − b‖.
        bound: ‖δ − δ*‖ ≤ residual / min(μ).
    """

    residual: float
    bound: float


def solve(
    problem: TrainingProblem,
    model: FittedModel,
    before: Callable[[TrainingProblem], Before] | None = None,
) -> tuple[TrainingProblem, Solution]:
    """The problem with its plan, and its solution.

    Args:
        problem: changed.
        model: as it was; mini-batches end near an optimum, and conjugate gradients go on from there.
        before: what conjugate gradients go on from; None: they begin at zero.
    """
    if model.head_alone:
        problem = replace(problem, plan=_plan("head", 0))
        with problem.context.timed("head"):
            return problem, head_solution(problem.head, problem.ridge.head)
    if model.report.solver == "dense":
        pairs = problem.quadratic.targets.numel()
        free = problem.context.free_bytes() - 6 * 8 * pairs**2
        problem = replace(problem, plan=_plan("dense", jacobian_bytes(problem.quadratic, pairs, free)))
        return problem, problem.solve()
    problem = replace(problem, plan=_plan("pcg", 0))
    problem.encoder.prepare()
    if before is None:
        return problem, problem.solve()
    with problem.context.timed("solve"):
        return problem, corrected(problem, before(problem))


def distance(problem: TrainingProblem, solution: Solution) -> Distance:
    """From the certificate of a solution."""
    proof = solution.certificate
    if not math.isnan(proof.error_bound):
        return Distance(proof.error_bound * solution.ridge.lowest, proof.error_bound)
    head, mu = problem.head, solution.ridge.head
    s = head.weights.double().to(head.features.device)[:, None]
    b = norm(head_products.vjp(s * head.residual.to(s), head.features))
    residual = proof.relative_residual * b
    return Distance(residual, residual / mu)


def _plan(solver: str, held: int) -> Plan:
    return Plan(solver, 0.0, 0, held, f"{solver}, after a change of the training set")
