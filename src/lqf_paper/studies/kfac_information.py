"""F-SI as the paper estimates it: the inverse of F + λI by K-FAC, all images ranked once.

Without sample i the weights move by about P⁻¹ J_iᵀ s_i e_i, P = K-FAC + M in place of H, and

    F-SI(i) = E_val ‖J_val P⁻¹ J_iᵀ s_i e_i‖² = (1/V) Σ_r E (s_i e_i · J_i P⁻¹ q_r)²,     q_r = J_valᵀ u_r,

over random signs u_r for all validation outputs together: so many passes over both parts, whatever the number of
images. The paper's factor 1 − α/(N−1+α) is next to one and left out, its residual e_i is there (its printed formula for
the change of an activation has it, its short form for large N loses it in places).
"""

from __future__ import annotations

import torch
from torch import Tensor

from lqf.curvature import Preconditioner, body_curvature
from lqf.curvature.preconditioner import head_block
from lqf.data import Images
from lqf.fitting import TrainingProblem
from lqf.linear.problem import constant
from lqf.runtime.precision import matmul_precision
from lqf_paper.studies.removal import ByKernels, BySolves, Removal

PROBES = 64


def kfac_information(model: Removal, validation: Images, seed: int = 0, probes: int | None = PROBES) -> Tensor:
    """(n,) F-SI of every training image on ``validation``; with ``probes`` None over every validation output."""
    problem, delta = _solved(model)
    q = problem.measured
    with matmul_precision(fast=True):
        body = problem.curvature or body_curvature(q, seed=seed)
        p = Preconditioner(head_block(q, problem.features), body)
    weighted = q.weights[:, None] * q.residuals(delta)
    n, v = len(problem.data.images), problem.data.n_views
    found = torch.zeros(n, dtype=torch.float64, device=weighted.device)
    draws = _signs(problem, validation, seed, probes)
    with matmul_precision(fast=True):
        for u in draws:
            moved = p.solve(_pulled(problem, validation, u), q)
            along = torch.zeros_like(weighted)
            for rows, x in q.inputs.batches():
                along[rows] = q.model.jvp(x, moved, q.fold[rows])[1]
            found += (weighted * along).sum(1).double().view(n, v).sum(1).square()
    return (found / len(validation) / (1 if probes is None else probes)).cpu()


def _solved(model: Removal) -> tuple[TrainingProblem, Tensor]:
    if isinstance(model, BySolves):
        return model.problem, model.whole.delta
    assert isinstance(model, ByKernels)
    problem = model.analysis.problem
    return problem, problem.solve().delta


def _signs(problem: TrainingProblem, validation: Images, seed: int, probes: int | None) -> list[Tensor]:
    """Cotangents of all validation outputs."""
    shape = (len(validation), problem.model.n_outputs)
    like = problem.quadratic.targets
    if probes is None:
        return [e.view(shape).to(like) for e in torch.eye(shape[0] * shape[1], dtype=like.dtype)]
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 2, shape, generator=generator).to(like) * 2 - 1 for _ in range(probes)]


def _pulled(problem: TrainingProblem, validation: Images, u: Tensor) -> Tensor:
    """J_valᵀ u."""
    inputs, out = problem.inputs_of(validation), problem.quadratic.zero()
    for rows, x in inputs.batches():
        out += problem.measured.model.vjp(x, constant(u[rows]))
    return out
