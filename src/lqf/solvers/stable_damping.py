"""The least damping, or the largest learning rate, with which mini-batch steps do not overshoot.

A batch B of b rows enters with weight n/b: it stands for H_B = (n/b) J_BᵀSJ_B, and one step of momentum m moves the
outputs of B in the end by η/(1−m) times P⁻¹H_B of their residuals. Beyond 2 that is more than there was, on the other
side, and the run diverges however small the curvature of the mean is. Λ, the largest eigenvalue of P⁻¹H_B, is measured
on a few batches by power iterations. Full batches come back at every step: there the bound is momentum's own, 2(1+m).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from lqf.curvature import Preconditioner
from lqf.curvature.damping import Damping, DampingKind
from lqf.linear.problem import QuadraticProblem
from lqf.solvers.stochastic import Inverse

Batch = tuple[Tensor, Tensor]
"""Row numbers on the device, and inputs."""
RHOS = tuple(1e-3 * 10 ** (k / 2) for k in range(13))
"""What is tried for ρ, up to 1,000."""
ITERATIONS, BATCHES = 6, 2


def stable_damping(
    curvature: Preconditioner,
    problem: QuadraticProblem,
    batches: Iterable[Batch],
    *,
    kind: DampingKind,
    learning_rate: float,
    momentum: float,
    batch: int,
    rhos: Sequence[float] = RHOS,
) -> Damping:
    """The least ρ of ``rhos`` whose steps on all ``batches`` stay on their side; the largest where none does."""
    made, limit = list(batches), allowed(momentum, whole=batch >= len(problem.targets))

    def stays(rho: float) -> bool:
        damped = Damping(rho, kind, batch).of(curvature, problem)
        return all(learning_rate * largest(damped, problem, *b) <= limit for b in made)

    low, high = 0, len(rhos) - 1
    while low < high:  # more damping only shortens steps
        middle = (low + high) // 2
        low, high = (low, middle) if stays(rhos[middle]) else (middle + 1, high)
    return Damping(rhos[low], kind, batch)


def stable_rate(inverse: Inverse, problem: QuadraticProblem, batches: Iterable[Batch], momentum: float) -> float:
    """The largest learning rate whose steps by P⁻¹ on these batches stay on their side."""
    made = list(batches)
    most = max(largest(inverse, problem, *b) for b in made)
    return allowed(momentum, whole=len(made[0][0]) >= len(problem.targets)) / most


def allowed(momentum: float, *, whole: bool) -> float:
    """What ηΛ may be: half of where deterministic momentum diverges, or two thirds of where a batch overshoots."""
    return 1 + momentum if whole else 4 / 3 * (1 - momentum)


def largest(inverse: Inverse, problem: QuadraticProblem, rows: Tensor, x: Tensor) -> float:
    """Λ, from below: the largest eigenvalue of P⁻¹H_B."""
    s = (len(problem.targets) / len(rows) * problem.weights[rows])[:, None]
    u = problem.batch_negative_gradient(rows, x, problem.zero())
    value = 0.0
    for _ in range(ITERATIONS):
        v = inverse.solve(u)
        w = problem.model.fused(x, v, lambda _, jv: s * jv, problem.fold[rows])[1]
        below = float(torch.dot(v.double(), u.double()))
        if below <= 0:
            break
        value = float(torch.dot(v.double(), w.double())) / below
        u = w / torch.linalg.vector_norm(w).clamp_min(torch.finfo(w.dtype).tiny)
    return value
