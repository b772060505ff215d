"""Kernel between other images and the training rows: k(x, x_i) = J(x) M⁻¹ J(x_i)ᵀ·μ_head, by pairs of outputs.

The other images' gradients through some layers are held, the training rows' are made batch by batch and met at once;
layers are taken in groups that fit the memory given, one pass over both per group (see `lqf.gram`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from lqf import wide
from lqf.gram import Cotangents, every_output, gradients, grouped, parts
from lqf.inputs import Inputs
from lqf.layers import Tape
from lqf.objective import Problem
from lqf.precision import matmul_precision
from lqf.progress import SILENT, Progress

COLUMNS = 1 << 16
"""Weights over which products are summed in the passes' own type; their sums are added up in float64."""


def head_cross(features: Tensor, training: Tensor) -> Tensor:
    """z̃_q·z̃_i (rows, n) in float64."""
    out = torch.ones(len(features), len(training), dtype=torch.float64, device=training.device)
    for at in range(0, features.shape[1], wide.COLUMNS):
        columns = slice(at, at + wide.COLUMNS)
        out += features[:, columns].double() @ training[:, columns].double().T
    return out


def body_cross(problem: Problem, queries: Inputs, *, budget: int, progress: Progress = SILENT) -> Tensor:
    """⟨J_body(x)ᵀe_c, J_body(x_i)ᵀe_d⟩ in float64: (rows·C, n·C), both row-major in (row, output).

    Other images see the mean of the heads at the point, training rows their own (see `lqf.model`).
    """
    model, c = problem.model, problem.model.n_outputs
    tape = Tape(model.body, problem.inputs.example())
    held = len(queries) * c
    per_gradient = max(1, budget // (held * problem.targets.element_size()))
    groups = list(grouped(parts(tape, per_gradient), per_gradient))
    out = torch.zeros(held, len(problem.targets) * c, dtype=torch.float64, device=problem.targets.device)
    total = len(groups) * (len(queries) + len(problem.targets))
    with progress.stage("kernel with the training data", total=total, unit="rows") as stage, matmul_precision(False):
        for group in groups:
            size = sum(p.size for p in group)
            left = problem.targets.new_empty(len(queries), c, size)
            for rows, x in queries.batches():
                mine = left.new_empty(len(x), c, size)
                gradients(tape, group, x, _mean_head(problem)(rows), mine)
                left[rows] = mine
                stage.advance(len(x))
            for rows, x in problem.inputs.batches():
                right = left.new_empty(len(x), c, size)
                gradients(tape, group, x, every_output(problem)(rows), right)
                columns = (rows[:, None] * c + torch.arange(c, device=rows.device)).flatten()
                out[:, columns] += _product(left.flatten(0, 1), right.flatten(0, 1))
                stage.advance(len(x))
            del left, right, mine
    return out


def _product(left: Tensor, right: Tensor) -> Tensor:
    pieces = zip(left.split(COLUMNS, 1), right.split(COLUMNS, 1), strict=True)
    return torch.stack([(a @ b.T).double() for a, b in pieces]).sum(0)


def _mean_head(problem: Problem) -> Cotangents:
    c = problem.model.n_outputs
    eye = torch.eye(c).to(problem.targets)

    def cotangents(rows: Tensor) -> Tensor:
        return torch.stack([problem.model.to_features(e.expand(len(rows), c)) for e in eye])

    return cotangents
