"""A fitted model at other strengths: head and body are solved again, everything else stays as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from lqf.changes.assemble import assembled
from lqf.changes.tuning.judged_by_kernels import LeftOut
from lqf.changes.tuning.strength_kernels import StrengthKernels
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import FittedModel, TrainingProblem
from lqf.fitting.assemble import head_solution
from lqf.fitting.out_of_sample import UNMEASURED, from_kernels
from lqf.fitting.pose import loo_bias
from lqf.fitting.select_ridge import Choice, Trial
from lqf.kernels.tangent import Kernels
from lqf.linear.ridge import Ridge
from lqf.runtime.memory import available_bytes
from lqf.settings import view_count
from lqf.solvers import Dense
from lqf.solvers.planner import Plan
from lqf.solvers.solution import Solution


def tuned_model(
    model: FittedModel, problem: TrainingProblem, ridge: Ridge, kernels: StrengthKernels | None, why: str
) -> FittedModel:
    """The optimum at other strengths, with its own leave-one-out where kernels give it.

    Args:
        model: as it was fitted.
        problem: its training problem.
        ridge: the strengths.
        kernels: exact ones, from which it is solved in closed form; averaged ones, by which leave-one-out is estimated
            alone; None: there are none.
        why: what the strengths come from, in words.
    """
    here = replace(problem, quadratic=problem.quadratic.with_ridge(ridge), kept=None)
    if model.head_alone:
        solution = head_solution(problem.head, ridge.head)
    elif kernels is not None and kernels.exact and model.report.solver == "dense":
        here = replace(here, kept=kernels.at(ridge))
        progress = problem.context.progress
        solution = Dense().solve(here.measured, here.features, kernels.at(ridge), progress=progress)
    else:
        here = problem.with_ridge(ridge)  # they share their curvature
        solution = here.solve(model.delta.to(here.quadratic.targets))
        here.release()
    loo = _left_out(model, here, ridge, kernels)
    return at_strengths(model, here, solution, loo, why)


def at_strengths(
    model: FittedModel, problem: TrainingProblem, solution: Solution, loo: LeaveOneOut | None, why: str
) -> FittedModel:
    """The model with the solution at other strengths; what was said of the old ones' choice is not said of these."""
    report = replace(
        model.report,
        plan=f"tuned: {why}",
        choices=tuple(c for c in model.report.choices if not str(c["what"]).startswith("weight decay")),
    )
    other: dict[str, Any] = {} if model.known is not None else {"known": None}
    beta = model.beta if loo is None else loo.temperature()
    return assembled(model, problem, solution, loo, report, beta=beta, **other)


def _left_out(
    model: FittedModel, problem: TrainingProblem, ridge: Ridge, kernels: StrengthKernels | None
) -> LeaveOneOut | None:
    """From kernels of all samples; None where there are none, or it was not wanted."""
    data = problem.data
    if kernels is None or data.alone or model.settings.loo == "none" or len(kernels.samples) < len(data):
        return None
    e = LeftOut(data.judge).residuals(kernels, ridge)
    first = None if model.trained_views is None else view_count(model.preprocess.views)
    if model.head_alone:
        return data.left_out(data.judge.outputs(e, first), "exact")
    nan = float("nan")
    choice = Choice(Trial(ridge.head, ridge.body / ridge.head, nan, nan), e, ())
    free = available_bytes(problem.context.device)
    plan = Plan("dense" if kernels.exact else "pcg", 0.0, 0, free // 4, "")
    bias = loo_bias(replace(problem, choice=choice, plan=plan), first)
    loo = from_kernels(_as_kernels(kernels, problem), choice, data, bias, first)
    if loo is None or model.report.moved is None:
        return loo
    return replace(loo, level="estimated", note="; ".join(n for n in (loo.note, UNMEASURED) if n))


def _as_kernels(kernels: StrengthKernels, problem: TrainingProblem) -> Kernels:
    """What `from_kernels` asks about: whether they are exact, and of which samples."""
    none = torch.empty(0)
    data = problem.data
    return Kernels(none, none, none, data.weights, data.groups, kernels.samples, kernels.exact)
