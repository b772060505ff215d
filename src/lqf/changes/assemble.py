"""A changed problem's solution as a fitted model: the old one in all that was kept, the new one in all that was not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, TrainingProblem
from lqf.fitting.knowledge import of_head, of_problem
from lqf.fitting.report import FitReport, of_solution, out_of_sample
from lqf.solvers.solution import Solution


def assembled(
    model: FittedModel,
    problem: TrainingProblem,
    solution: Solution,
    loo: LeaveOneOut | None,
    report: FitReport,
    **other: Any,
) -> FittedModel:
    """The model with the solution of a changed problem. What the fit said of models that it tried goes.

    Args:
        model: as it was.
        problem: changed.
        solution: of it.
        loo: its leave-one-out.
        report: its report, as far as the change is not the solution (`solved`).
        other: what else of the model is another one.
    """
    linear, dtype = problem.model, problem.context.dtype
    if model.head_alone:
        head, body = solution.delta.view(linear.n_outputs, -1), solution.delta.new_zeros(0)
    else:
        v, body = linear.split(solution.delta)
        head = v + linear.of_all_features(linear.heads.mean(0)) if linear.around_w0 else v
    return replace(
        model,
        **{
            "head": head.detach().to("cpu", dtype),
            "delta": body.detach().to("cpu", dtype),
            "loo": loo,
            "report": solved(report, problem, solution, loo, alone=model.head_alone),
            "tried": {},
            "known": of_head(problem.head_fit) if model.head_alone else of_problem(problem, solution),
        }
        | other,
    )


def solved(
    report: FitReport, problem: TrainingProblem, solution: Solution, loo: LeaveOneOut | None, *, alone: bool
) -> FitReport:
    """The report with what a solution says of itself."""
    return replace(
        report.without_climb(),
        **of_solution(solution, problem.data.total_weight, alone=alone),
        **out_of_sample(loo),
    )
