"""Kernel between other images and the training rows: k(x, x_i) = J(x) M⁻¹ J(x_i)ᵀ·μ_head, by pairs of outputs.

The other images' gradients through some layers are held, the training rows' are made batch by batch and met at once;
layers are taken in groups that fit the memory given, one pass over both per group (see `lqf.kernels.gradients`). Of
few sums of outputs u the same is one forward-mode pass over the training rows for each, J(x_i) M⁻¹ (J(x)ᵀu), without
gradients of single rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lqf.kernels.gradients import Part, gradients, grouped, parts
from lqf.kernels.gram import combined
from lqf.linear import head_products
from lqf.linear.encoded import EncodedInputs
from lqf.linear.inputs import Inputs, average_views
from lqf.linear.layers import Tape
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision
from lqf.utils.progress import SILENT, Progress

COLUMNS = 1 << 16
"""Weights over which products are summed in the passes' own type; their sums are added up in float64."""


def head_cross(features: Tensor, training: Tensor) -> Tensor:
    """z̃_q·z̃_i (rows, n) in float64."""
    out = torch.ones(len(features), len(training), dtype=torch.float64, device=training.device)
    for at in range(0, features.shape[1], head_products.COLUMNS):
        columns = slice(at, at + head_products.COLUMNS)
        out += features[:, columns].double() @ training[:, columns].double().T
    return out


def body_cross(
    problem: QuadraticProblem,
    queries: Inputs,
    signs: Tensor | None = None,
    *,
    budget: int | None = None,
    progress: Progress = SILENT,
) -> Tensor:
    """⟨J_body(x)ᵀe_c, M⁻¹ J_body(x_i)ᵀe_d⟩·μ_head in float64: (rows·C, n·C), both row-major in (row, output).

    With ``signs`` (R, C) the average over the outputs instead, (1/RC) Σ_r ⟨J(x)ᵀu_r, M⁻¹J(x_i)ᵀu_r⟩·μ_head: (rows, n).
    Other images see the mean of the heads at the point, training rows their own (see `lqf.linear.model`). ``budget``:
    bytes for the part of the images' Jacobian that is held at a time; default: a quarter of what is free.
    """
    budget = available_bytes(problem.targets.device) // 4 if budget is None else budget
    model, c = problem.model, problem.model.n_outputs
    us = torch.eye(c).to(problem.targets) if signs is None else signs.to(problem.targets)
    theirs, own = combined(problem, us, mean_head=True), combined(problem, us)
    tape = Tape(model.body, problem.inputs.example())
    held, k = len(queries) * len(us), len(us) if signs is None else 1
    per_gradient = max(1, budget // (held * problem.targets.element_size()))
    groups = list(grouped(parts(tape, per_gradient, problem.ridge.of), per_gradient))
    out = problem.targets.new_zeros(len(queries) * k, len(problem.targets) * k, dtype=torch.float64)
    total = len(groups) * (len(queries) + len(problem.targets))
    with progress.stage("kernel with the training data", total=total, unit="rows") as stage, matmul_precision(False):
        for group in groups:
            size = sum(p.size for p in group)
            inverse = inverse_ridge(problem, group)
            left = problem.targets.new_empty(len(queries), len(us), size)
            for rows, x in queries.batches():
                mine = left.new_empty(len(x), len(us), size)
                gradients(tape, group, x, theirs(rows), mine)
                left[rows] = mine * inverse
                stage.advance(len(x))
            for rows, x in problem.inputs.batches():
                right = left.new_empty(len(x), len(us), size)
                gradients(tape, group, x, own(rows), right)
                columns = (rows[:, None] * k + torch.arange(k, device=rows.device)).flatten()
                if signs is None:
                    out[:, columns] += _product(left.flatten(0, 1), right.flatten(0, 1))
                else:
                    pairs = zip(left.unbind(1), right.unbind(1), strict=True)
                    out[:, columns] += sum(_product(a, b) for a, b in pairs) / signs.numel()
                stage.advance(len(x))
            del left, right, mine
    return problem.inputs.world.all_reduce_(out)


def sums_cross(problem: QuadraticProblem, asked: EncodedInputs, u: Tensor) -> Tensor:
    """⟨J_body(x)ᵀu_k, M⁻¹ J_body(x_i)ᵀe_d⟩·μ_head of sums of outputs with weights u (k, rows, C): (k, n·C), float64."""
    held = problem.targets.new_empty(0).element_size() * problem.model.body.size
    free = min(problem.inputs.world.all_gather(available_bytes(problem.targets.device)))
    at_once = max(1, free // (8 * max(held, 1)))
    parts = []
    with matmul_precision(fast=False):
        for some in u.split(at_once):
            v = asked.body_vjp(problem.model, some.to(problem.targets))
            parts.append(problem.body_jvp(v * (problem.ridge.head / problem.body_ridge)).double().flatten(1))
    return torch.cat(parts)


def averaged_cross(
    problem: QuadraticProblem,
    features: Tensor,
    side: EncodedInputs,
    signs: Tensor,
    *,
    budget: int | None = None,
    progress: Progress = SILENT,
) -> Tensor:
    """z̃_q·z̃_i + k(x_q, x_i) of other images with the training rows, averaged over views: (images, n)."""
    body = body_cross(problem, side.inputs, signs, budget=budget, progress=progress)
    return average_views(head_cross(side.features, features) + body, side.inputs.n_views)


def inverse_ridge(problem: QuadraticProblem, group: list[Part]) -> Tensor:
    """μ_head M⁻¹ of the weights of some parts, in their order."""
    ridge = problem.ridge
    factors = torch.tensor([ridge.head / ridge.of(p.weight) for p in group], dtype=torch.float64).to(problem.targets)
    return factors.repeat_interleave(torch.tensor([p.size for p in group], device=factors.device))


def _product(left: Tensor, right: Tensor) -> Tensor:
    pieces = zip(left.split(COLUMNS, 1), right.split(COLUMNS, 1), strict=True)
    return torch.stack([(a @ b.T).double() for a, b in pieces]).sum(0)
