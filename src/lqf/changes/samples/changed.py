"""The model of a changed training set: classes, point and table are those of its samples, leave-one-out is new."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from lqf.analysis import seconds
from lqf.changes.assemble import assembled
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, TrainingProblem, TrainingTable
from lqf.fitting.point import BLIND
from lqf.fitting.report import FitReport
from lqf.kernels.ridge import KernelRidge
from lqf.settings import view_count
from lqf.solvers.solution import Solution
from lqf.utils.exactness import Level


def changed_model(
    model: FittedModel,
    table: TrainingTable,
    problem: TrainingProblem,
    solution: Solution,
    what: dict[str, Any],
) -> FittedModel:
    """The model of a changed training set.

    Leave-one-out and with it the temperature of the probabilities is made anew where the kernel is factorised. By
    conjugate gradients it is estimated from the kernel averaged over the outputs, where the fit had that and nothing
    was added, and the temperature stays.

    Args:
        model: as it was.
        table: the training samples now.
        problem: theirs.
        solution: of it.
        what: entry of `FitReport.changes`.
    """
    loo, dtype = leave_one_out(model, problem), problem.context.dtype
    linear = problem.model
    if model.head_alone:
        point, kept = torch.zeros_like(solution.delta.view(linear.n_outputs, -1)[:, :-1]), None
    else:
        point = linear.of_all_features(linear.heads.mean(0))[:, :-1]
        kept = replace(problem.point, heads=problem.point.heads.detach().cpu(), fold=problem.point.fold.cpu())
    return assembled(
        model,
        problem,
        solution,
        loo,
        _report(model, problem, what),
        classes=problem.data.classes,
        constant=problem.data.constant,
        point=point.detach().to("cpu", dtype),
        beta=model.beta if loo is None or loo.level != "exact" else loo.temperature(),
        train=table,
        kept_point=kept,
    )


def leave_one_out(model: FittedModel, problem: TrainingProblem) -> LeaveOneOut | None:
    """From the factorised kernel, or the one averaged over the outputs; None where there is none, or no sample can be
    left out.
    """
    data, kernel = problem.data, problem.head.ridge if model.head_alone else problem.factorised
    averaged = kernel is None and model.settings.loo != "none"
    if averaged:
        kernel = problem.remembered.averaged
    if data.alone or kernel is None:
        return None
    r = problem.head.residual if model.head_alone else problem.quadratic.initial_residual(problem.features)
    e = _left_out(kernel, r, problem.ridge.head)
    seen = not model.head_alone and problem.point.kind not in BLIND
    notes = ["roughly, by the kernel averaged over the outputs"] if averaged else []
    notes += ["the linearisation point has seen the labels, which flatters it by an unknown amount"] if seen else []
    shown = model.report.predict_views
    level: Level = "estimated" if averaged else "exact"
    return data.left_out(data.judge.outputs(e, None if shown is None else view_count(shown)), level, "; ".join(notes))


def _left_out(kernel: KernelRidge, r: torch.Tensor, mu: float) -> torch.Tensor:
    """(n, C) leave-one-out residuals by a kernel over the rows, or over all (row, output) pairs."""
    if len(kernel.q) == len(r):
        return kernel.loo(r, mu)
    return kernel.loo(r.reshape(-1, 1), mu).view_as(r)


def _report(model: FittedModel, problem: TrainingProblem, what: dict[str, Any]) -> FitReport:
    """What is another one because the samples are."""
    data, context = problem.data, problem.context
    alone = problem.head_fit.acting.head
    e = alone.ridge.loo(alone.residual, model.report.point_ridge)
    assert problem.plan is not None
    return replace(
        model.report,
        n=len(data),
        classes=data.classes,
        plan=problem.plan.sentence,
        choices=(),
        head_loo_error=data.judge.error(e),
        device=str(context.device),
        processes=1,
        skipped=(),
        stages={name: round(took, 3) for name, took in context.clock.seconds.items()},
        seconds=context.clock.total(),
        images_given=None,
        changes=(*model.report.changes, {**what, **seconds.handed_on(model, len(data), str(context.device))}),
    )
