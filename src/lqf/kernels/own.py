"""Kernel of images with themselves, k(x, x) = J(x) M⁻¹ J(x)ᵀ·μ_head: what their outputs vary by before any training."""

from __future__ import annotations

import torch
from torch import Tensor

from lqf.kernels.cross import COLUMNS, inverse_ridge
from lqf.kernels.gradients import gradients, grouped, parts
from lqf.kernels.gram import combined
from lqf.linear.encoded import EncodedInputs
from lqf.linear.inputs import Inputs, average_views
from lqf.linear.layers import Tape
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision
from lqf.utils.progress import SILENT, Progress


def own_head(asked: EncodedInputs) -> Tensor:
    """z̃·z̃ (images,) in float64, z̃ averaged over an image's views."""
    return 1 + average_views(asked.features, asked.inputs.n_views).double().square().sum(1)


def own_kernel(
    problem: QuadraticProblem,
    queries: Inputs,
    signs: Tensor | None = None,
    *,
    progress: Progress = SILENT,
) -> Tensor:
    """⟨J_body(x)ᵀe_c, M⁻¹ J_body(x)ᵀe_d⟩·μ_head (images, C, C) in float64, J averaged over an image's views.

    With ``signs`` (R, C) the average over the outputs instead, (1/RC) Σ_r ⟨J(x)ᵀu_r, M⁻¹J(x)ᵀu_r⟩·μ_head: (images,).
    """
    budget = available_bytes(problem.targets.device) // 4  # bytes for gradients
    c, v = problem.model.n_outputs, queries.n_views
    us = torch.eye(c).to(problem.targets) if signs is None else signs.to(problem.targets)
    through = combined(problem, us, mean_head=True)
    tape, at_once = Tape(problem.model.body, problem.inputs.example()), max(len(r) for r in queries.batch_rows())
    most = max(1, budget // (3 * at_once * len(us) * problem.targets.element_size()))
    groups = list(grouped(parts(tape, most, problem.ridge.of), most))
    out = problem.targets.new_zeros(len(queries) // v, len(us), len(us), dtype=torch.float64)
    total = len(groups) * len(queries)
    with progress.stage("kernel of the images", total=total, unit="rows") as stage, matmul_precision(fast=False):
        for group in groups:
            size = sum(p.size for p in group)
            root = inverse_ridge(problem, group).sqrt()
            for rows, x in queries.batches():
                made = problem.targets.new_empty(len(x), len(us), size)
                gradients(tape, group, x, through(rows), made)
                for piece in (average_views(made, v) * root).split(COLUMNS, 2):
                    out[rows[::v] // v] += (piece @ piece.mT).double()
                stage.advance(len(x))
    return out if signs is None else out.diagonal(dim1=1, dim2=2).sum(1) / signs.numel()
