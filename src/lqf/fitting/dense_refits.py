"""Refits without each fold where the kernel of all (row, output) pairs fits: one kernel and one factorisation each.

The linearisation point of a refit is made without the fold, so its kernel is another one: rows of the other folds see
the heads that are cross-fitted among them, rows of the fold the mean of these, as new images do. The body's ridge
strength stays as it is. With K over all rows,

    a = (K_oo + μ_head S_o⁻¹)⁻¹ r_o,     f_k = base_k + K_ko a        (o: the other folds, k: the fold).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lqf.fitting.refits import Refitted
from lqf.fitting.training_problem import TrainingProblem
from lqf.fitting.without_fold import posed_without
from lqf.kernels.ridge import KernelRidge
from lqf.kernels.tangent import exact_kernels


def dense_refits(problem: TrainingProblem, folds: int, strengths: Sequence[float] = ()) -> Refitted:
    """Outputs of the rows in the first ``folds``, each from the model without its fold.

    ``strengths``: of the head in each; default: the problem's own.
    """
    assert problem.plan is not None
    fold, progress = problem.data.folds, problem.context.progress
    out = torch.full_like(problem.quadratic.targets, torch.nan)
    with progress.stage("refits without a fold", total=folds, unit="folds") as stage:
        for k in range(folds):
            left_out = (fold == k).to(out.device)
            mu = strengths[k] if strengths else problem.ridge.head
            out[left_out] = _without(problem, left_out, mu, problem.plan.jacobian_bytes).to(out)
            stage.advance(1)
    return Refitted(out, ())


def _without(problem: TrainingProblem, left_out: Tensor, mu: float, budget: int) -> Tensor:
    """(rows of the fold, C) outputs, with the strength ``mu`` of the head."""
    keep = ~left_out
    posed = posed_without(problem, left_out)
    groups, c = problem.data.groups, posed.model.n_outputs
    kernels = exact_kernels(posed, problem.features, groups, budget=budget)
    kernel = kernels.whole(problem.ridge.with_head(mu))
    inside, outside = (mask.repeat_interleave(c) for mask in (keep, left_out))
    ridge = KernelRidge.from_kernel(kernel[inside][:, inside], posed.weights[keep].repeat_interleave(c))
    a = ridge.dual(kernels.residual[keep].reshape(-1, 1), mu)
    base = posed.model.base(problem.features[left_out], posed.fold[left_out])
    return base.double() + (kernel[outside][:, inside] @ a).view(-1, c)
