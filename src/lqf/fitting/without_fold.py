"""A training problem as it would be posed without a fold: nothing of its labels enters heads and point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lqf.fitting.select_stages import StageChoice, choose_stages
from lqf.fitting.training_problem import TrainingProblem
from lqf.kernels.gram import Cotangents, body_kernels
from lqf.kernels.nested import NestedKernels
from lqf.linear import head_products
from lqf.linear.problem import QuadraticProblem, rows_of, subproblem
from lqf.linear.stages import stage_groups
from lqf.solvers.planner import jacobian_bytes

NESTED = {"cpu": (200, 1), "cuda": (600, 2)}
"""Samples of the kernels that choose strengths, and random sums of outputs over which they are averaged; all outputs
where these are no more gradients."""


def nested_choice(problem: TrainingProblem) -> StageChoice:
    """Ridge strengths of head and stages by kernels without each fold, or of head and body where the settings ask for
    one strength.
    """
    context, head = problem.context, problem.head_fit
    with context.timed("kernel"):
        kernels = nested_kernels(problem, *NESTED[context.device.type])
    with context.timed("weight decay"):
        by_stage = context.settings.by_stage
        choice = choose_stages(kernels, problem.data.judge, head.choice.mu, by_stage=by_stage)
    return StageChoice.from_dict(context.world.first(choice.to_dict))


def posed_without(problem: TrainingProblem, left_out: Tensor) -> QuadraticProblem:
    """The problem over all rows around the point of those that are not ``left_out`` (n,).

    The rows left out see the mean of its heads, as new images do.
    """
    quadratic, rows = problem.quadratic, (~left_out).nonzero()[:, 0]
    _, renumbered = torch.unique(problem.data.folds[rows.cpu()], return_inverse=True)
    point = problem.point_of(rows, problem.head.among(rows), renumbered)
    heads = torch.cat([point.heads, point.heads.mean(0, keepdim=True)]).to(quadratic.model.heads)
    fold = torch.full_like(quadratic.fold, len(heads) - 1)
    fold[rows] = point.fold.to(fold)
    return replace(quadratic, model=replace(quadratic.model, heads=heads), fold=fold)


def nested_kernels(problem: TrainingProblem, most_samples: int, draws: int) -> NestedKernels:
    """Kernels without each fold, averaged over ``draws`` random sums of the outputs, of at most so many samples.

    All folds share the passes over the data.
    """
    data, context, quadratic = problem.data, problem.context, problem.quadratic
    generator = torch.Generator().manual_seed(context.settings.seed)
    n, c = len(data), quadratic.model.n_outputs
    gradients = most_samples * draws
    most_samples = max(2 * len(data.classes), most_samples // data.n_views)
    samples = torch.arange(n) if n <= most_samples else torch.randperm(n, generator=generator)[:most_samples].sort()[0]
    rows, part = rows_of(quadratic, samples), subproblem(quadratic, samples)
    device = quadratic.targets.device
    folds = [posed_without(problem, (data.folds == k).to(device)) for k in range(int(data.folds.max()) + 1)]
    us = 2 * torch.randint(0, 2, (min(draws, c), c), generator=generator) - 1
    us = (torch.eye(c).double() * c**0.5 if len(samples) * c <= gradients else us).to(quadratic.targets)
    per_row, groups = len(folds) * len(us), stage_groups(quadratic.model.body)
    free = context.free_bytes() - 8 * len(folds) * len(groups) * len(rows) ** 2
    body = body_kernels(
        part,
        _through_each(folds, us, rows),
        per_row,
        sets=len(folds),
        budget=jacobian_bytes(part, len(rows) * per_row, free),
        groups=groups,
        joint=False,
        progress=context.progress,
    )
    return NestedKernels(
        head_products.gram(problem.features[rows]),
        body / c,
        part.initial_residual(problem.features[rows]).double(),
        part.weights.double(),
        data.folds[rows.cpu()].to(device),
        samples,
        groups,
    )


def _through_each(folds: Sequence[QuadraticProblem], us: Tensor, rows: Tensor) -> Cotangents:
    """Cotangents of the sums ``us`` (R, C) of the outputs, through the heads without every fold in turn."""

    def cotangents(index: Tensor) -> Tensor:
        own = rows[index]
        return torch.stack([p.model.to_features(u.expand(len(own), -1), p.fold[own]) for p in folds for u in us])

    return cotangents
