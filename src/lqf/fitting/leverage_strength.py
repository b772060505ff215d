"""The ridge strength μ' at which a kernel that all outputs share leaves out of folds what refits without them found.

Such a kernel gives every output a body of its own, or none, and explains too much or too little; at μ' its leverages
are those of the model. A change of a few samples moves μ'/μ by little, so it outlasts the refits it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.training_problem import TrainingProblem
from lqf.kernels.ridge import KernelRidge
from lqf.linear.inputs import average_views

DECADES = (-2.0, 5.0)
"""Between which μ'/μ is searched."""
MOST_ROWS = 5000
"""Of which a fit finds it: it factorises every fold's block for each of some twenty values. Above, it is found when a
question needs it."""


def strength_by_refits(
    problem: TrainingProblem, kernel: KernelRidge, residuals: Tensor, loo: LeaveOneOut, views: int
) -> float:
    """μ' of a kernel over all rows, from the residuals (n, C) there and what refits have found.

    ``views``: of a sample, by which its output out of sample was averaged.
    """
    known, data = loo.known, problem.data
    outputs, targets = loo.outputs.double()[known], problem.quadratic.targets.double()

    def gap(e: Tensor) -> Tensor:
        shown = average_views(targets.to(e) - e, data.n_views, views).cpu()
        return (shown[known] - outputs).square().sum()

    return strength_by_folds(kernel, residuals, data.folds, gap, problem.ridge.head)


def strengths_of(
    problem: TrainingProblem,
    averaged: KernelRidge | None,
    residuals: Tensor | None,
    loo: LeaveOneOut | None,
    views: int | None,
) -> Mapping[str, float]:
    """μ'/μ of the head's own kernel and of the averaged one, where it is known; else what was known of them before."""
    shared = problem.model.n_outputs > 1 and "moved" not in problem.head_fit.backbone.spec
    shared = shared and len(problem.features) <= MOST_ROWS
    if residuals is None or loo is None or views is None or not loo.by_refits or not shared:
        return problem.remembered.strengths
    kernels = {"head": problem.head.ridge, "averaged": averaged}
    e, mu = residuals.double(), problem.ridge.head
    return {
        name: strength_by_refits(problem, kernel, e, loo, views) / mu
        for name, kernel in kernels.items()
        if kernel is not None
    }


def strength_by_folds(
    ridge: KernelRidge, e: Tensor, folds: Tensor, gap: Callable[[Tensor], Tensor], mu: float
) -> float:
    """μ' at which the residuals e (n, C), each fold left out by the kernel, come nearest to those of real refits.

    Args:
        ridge: the factorised kernel of all rows.
        e: residuals of the whole problem.
        folds: (n,) of the rows.
        gap: squared distance of residuals (n, C) without their folds to those of the refits.
        mu: the strength of the head, from which the search sets out.
    """
    grouped = KernelRidge(ridge.q, ridge.lam, ridge.weights, folds)

    def miss(exponent: float) -> float:
        return float(gap(grouped.leave_out(e, mu * 10**exponent)))

    best = min(torch.arange(*DECADES, 0.5).tolist(), key=miss)
    for step in (0.25, 0.125, 0.0625):
        best = min((best - step, best, best + step), key=miss)
    return mu * 10**best
