"""How uncertain a model's outputs are on images without labels, and how these uncertainties hang together.

With the kernel K of a training problem, whose labels have noise μ, the outputs of other images have the covariance

    Σ = K_qq − K_qn (K + μ)⁻¹ K_nq

given the training data: of a head K = z̃z̃ᵀ for every output alike, of the dense dual it is over (image, output) pairs,
and where that is too large the kernel averaged over the outputs stands in for it (`estimated`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lqf.analysis.by_kernel import ByKernel
from lqf.analysis.method import FIXED_NETWORK, FIXED_POINT
from lqf.errors import LQFError
from lqf.fitting import FittedModel, TrainingProblem
from lqf.kernels.cross import body_cross, head_cross
from lqf.kernels.ridge import KernelRidge
from lqf.linear.encoded import EncodedInputs
from lqf.linear.inputs import average_views
from lqf.linear.model import with_one
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.memory import available_bytes
from lqf.selection.greedy import Covariance
from lqf.utils import naming
from lqf.utils.exactness import Level

AVERAGED = "by the kernel averaged over the outputs"


@dataclass(frozen=True)
class Uncertain:
    """Σ of some images, the noise μ in the same units, and how exact it is."""

    covariance: Covariance
    noise: float
    level: Level
    note: str = ""


def predictive_covariance(model: FittedModel, problem: TrainingProblem, asked: EncodedInputs) -> Uncertain:
    """Σ of other images under a fitted model whose training problem was opened again."""
    mu = problem.ridge.head
    if model.head_alone:
        level: Level = "exact" if model.solved else "estimated"
        return Uncertain(_of_head(problem, asked), mu, level, "" if model.solved else FIXED_NETWORK)
    problem.encoder.prepare()
    if model.report.solver == "dense":
        ridge = ByKernel.of(model, problem).dual.ridge
        return Uncertain(_of_pairs(problem, asked, ridge), mu, "exact", FIXED_POINT)
    return Uncertain(_of_averages(problem, asked), mu, "estimated", f"{FIXED_POINT}; {AVERAGED}")


def _of_head(problem: TrainingProblem, asked: EncodedInputs) -> Covariance:
    """From the smaller of the two normal equations."""
    head, mu = problem.head, problem.ridge.head
    z = with_one(average_views(asked.features, asked.inputs.n_views)).double()  # (Q, p+1)
    if head.thin:
        rows = head.weights.double().sqrt().to(z)[:, None] * with_one(head.features).double()
        root = torch.linalg.cholesky(rows.T @ rows + mu * torch.eye(z.shape[1]).to(z))
        half = mu**0.5 * torch.linalg.solve_triangular(root, z.T, upper=False).T
        return Covariance(half, half)
    k = head_cross(z[:, :-1], head.features)  # (Q, n)
    if len(z) <= z.shape[1] + k.shape[1]:
        _check_memory(problem, len(z), len(z) + k.shape[1])
        return _given(head_cross(z[:, :-1], z[:, :-1]), k, head.ridge, mu, 1)
    return Covariance(torch.cat([z, -k], 1), torch.cat([z, head.ridge.dual(k.T, mu).T], 1))


def _of_pairs(problem: TrainingProblem, asked: EncodedInputs, ridge: KernelRidge) -> Covariance:
    """Over (image, output) pairs."""
    c, v, quadratic = problem.model.n_outputs, asked.inputs.n_views, problem.quadratic
    images = len(asked.features) // v
    _check_memory(problem, images * v * c, images * v * c + len(quadratic.targets) * c)
    one, pool = torch.eye(c).double(), _over(quadratic, asked)
    progress = problem.context.progress
    z = average_views(asked.features, v)
    body = body_cross(quadratic, asked.inputs, progress=progress)
    body = average_views(body.view(images * v, -1), v).view(images * c, -1)
    k = body + torch.kron(head_cross(z, problem.features), one.to(body))
    own = body_cross(pool, asked.inputs, progress=progress).view(images, v, c, images, v, c).mean((1, 4))
    own = own.reshape(images * c, images * c) + torch.kron(head_cross(z, z), one.to(k))
    return _given(own, k, ridge, problem.ridge.head, c)


def _of_averages(problem: TrainingProblem, asked: EncodedInputs) -> Covariance:
    """By the kernel averaged over the outputs."""
    kernels, v = problem.averaged, asked.inputs.n_views
    images = len(asked.features) // v
    _check_memory(problem, images * v, images * v + len(problem.quadratic.targets))
    z, pool = average_views(asked.features, v), _over(problem.quadratic, asked)
    own = body_cross(pool, asked.inputs, kernels.signs, progress=problem.context.progress)
    own = own.view(images, v, images, v).mean((1, 3)) + head_cross(z, z)
    k = problem.averaged_cross(asked)
    return _given(own, k, kernels.factorise(problem.ridge), problem.ridge.head, 1)


def _given(own: Tensor, k: Tensor, ridge: KernelRidge, mu: float, outputs: int) -> Covariance:
    """own − k (K + μ)⁻¹ kᵀ."""
    return Covariance(own - k @ ridge.dual(k.T, mu), None, outputs)


def _over(quadratic: QuadraticProblem, asked: EncodedInputs) -> QuadraticProblem:
    """The same model over the rows of other images, which all see the mean of the heads at the point."""
    rows = len(asked.features)
    return replace(
        quadratic,
        model=replace(quadratic.model, heads=quadratic.model.heads.mean(0, keepdim=True)),
        inputs=asked.inputs,
        targets=quadratic.targets.new_zeros(rows, quadratic.model.n_outputs),
        weights=quadratic.weights.new_ones(rows),
        fold=quadratic.fold.new_zeros(rows),
    )


def _check_memory(problem: TrainingProblem, pairs: int, meets: int) -> None:
    need, free = 3 * 8 * pairs * meets, available_bytes(problem.context.device)
    if need > free:
        raise LQFError(
            f"the covariance of the pool needs about {need / 2**30:.1f} GB and {free / 2**30:.1f} GB are free; "
            f"give fewer images, or {naming.given('by', 'uncertainty')}"
        )
