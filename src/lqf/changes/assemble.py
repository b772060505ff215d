"""A changed problem's solution as a fitted model: the old one in all that was kept, the new one in all that was not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, TrainingProblem, TrainingTable
from lqf.fitting.knowledge import of_head, of_problem
from lqf.fitting.point import BLIND
from lqf.fitting.report import FitReport, out_of_sample
from lqf.kernels.ridge import KernelRidge
from lqf.settings import view_count
from lqf.solvers.solution import Solution
from lqf.utils.exactness import Level


def assembled(
    model: FittedModel,
    table: TrainingTable,
    problem: TrainingProblem,
    solution: Solution,
    what: dict[str, Any],
) -> FittedModel:
    """The model of a changed training set.

    Leave-one-out and with it the temperature of the probabilities is made anew where the kernel is factorised. By
    conjugate gradients it is estimated from the kernel averaged over the outputs, where the fit had that and nothing
    was added, and the temperature stays. What the fit said of models that it tried is not true of this one, and goes.

    Args:
        model: as it was.
        table: the training samples now.
        problem: theirs.
        solution: of it.
        what: entry of `FitReport.changes`.
    """
    loo = leave_one_out(model, problem)
    linear = problem.model
    mean = linear.of_all_features(linear.heads.mean(0))
    if model.head_alone:
        head, body = solution.delta.view(linear.n_outputs, -1), solution.delta.new_zeros(0)
        point = torch.zeros_like(head[:, :-1])
    else:
        v, body = linear.split(solution.delta)
        head, point = (v + mean if linear.around_w0 else v), mean[:, :-1]
    head, point, body = (t.detach().to("cpu", problem.context.dtype) for t in (head, point, body))
    kept = replace(problem.point, heads=problem.point.heads.detach().cpu(), fold=problem.point.fold.cpu())
    return replace(
        model,
        classes=problem.data.classes,
        constant=problem.data.constant,
        head=head,
        point=point,
        delta=body,
        beta=model.beta if loo is None or loo.level != "exact" else loo.temperature(),
        train=table,
        loo=loo,
        report=_report(model, problem, solution, loo, what),
        tried={},
        known=of_head(problem.head_fit) if model.head_alone else of_problem(problem, solution),
        kept_point=None if model.head_alone else kept,
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


def _report(
    model: FittedModel,
    problem: TrainingProblem,
    solution: Solution,
    loo: LeaveOneOut | None,
    what: dict[str, Any],
) -> FitReport:
    data, proof, ridge, context = problem.data, solution.certificate, solution.ridge, problem.context
    total, alone = data.total_weight, problem.head_fit.acting.head
    e = alone.ridge.loo(alone.residual, model.report.point_ridge)
    assert problem.plan is not None
    return replace(
        model.report,
        n=len(data),
        classes=data.classes,
        plan=problem.plan.sentence,
        choices=(),
        solver=solution.solver,
        level=solution.level,
        weight_decay=ridge.head / total,
        body_weight_decay=None if model.head_alone else ridge.body / total,
        relative_residual=proof.relative_residual,
        passes=proof.passes,
        converged=proof.converged,
        certificate=proof.sentence,
        history=solution.history,
        unknowns=solution.delta.numel(),
        **out_of_sample(loo),
        head_loo_error=data.judge.error(e),
        device=str(context.device),
        processes=1,
        skipped=(),
        stages={name: round(seconds, 3) for name, seconds in context.clock.seconds.items()},
        seconds=context.clock.total(),
        output_gap=proof.output_gap,
        effort=None,
        rungs=(),
        error=None,
        error_standard_error=None,
        error_note=None,
        balanced_error=None,
        balanced_standard_error=None,
        next_rung=None,
        images_given=None,
        changes=(*model.report.changes, what),
    )
