"""The largest eigenvalues of a Hessian that is only known by its products with vectors, by scipy's Lanczos iteration.

How far they stand out is measured against the mean of all others: the trace over the rank, by a few random products.

Three Hessians are compared: of the ordinary fine-tuning loss (1/N) Σ ℓ(f(x_i; w), y_i) at any weights w, whose products
with vectors are derivatives of its gradient; of the linear-quadratic problem, H = JᵀSJ + M; and of the latter seen
through its preconditioner, P^(−1/2) H P^(−1/2), whose spread decides how soon an iterative solver is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, jvp

from lqf.curvature.damping import DampedCurvature
from lqf.errors import LQFError, MissingDependency
from lqf.linear.problem import QuadraticProblem, constant
from lqf.utils.progress import SILENT, Progress

Product = Callable[[Tensor], Tensor]
"""v -> Av, for a symmetric A."""
Loss = Callable[[dict[str, Tensor]], Tensor]
"""Weights by name -> a number."""


@dataclass(frozen=True)
class Spectrum:
    """The ``k`` largest eigenvalues of a symmetric matrix.

    Attributes:
        values: in descending order.
        size: of the matrix.
        products: with the matrix, to find them.
        mean: of all eigenvalues that the matrix can have apart from zeros, where it was measured.
    """

    values: tuple[float, ...]
    size: int
    products: int
    mean: float | None = None

    def shifted(self, by: float, size: int) -> Spectrum:
        """Of A + by·I, where A is the same matrix among ``size`` directions, all others of which it maps to zero."""
        mean = None if self.mean is None else self.mean + by
        return replace(self, values=tuple(v + by for v in self.values), size=size, mean=mean)

    @property
    def condition(self) -> float:
        """λ_1/λ_k: among the k directions of most curvature, how much the curvature differs."""
        return self.values[0] / self.values[-1] if self.values[-1] > 0 else float("inf")

    @property
    def prominence(self) -> float | None:
        """λ_1 over the mean: how much faster than a usual direction the steepest one is."""
        return self.values[0] / self.mean if self.mean is not None and self.mean > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self) | {"condition": self.condition, "prominence": self.prominence}


def largest(
    product: Product, like: Tensor, k: int, *, tol: float = 1e-3, seed: int = 0, progress: Progress = SILENT
) -> Spectrum:
    """The k largest eigenvalues of ``product`` over vectors ``like`` one (D,), by implicitly restarted Lanczos."""
    try:
        from scipy.sparse.linalg import LinearOperator, eigsh
    except ImportError as e:
        raise MissingDependency("scipy", "the spectrum of a Hessian") from e
    if not 0 < k < len(like):
        raise LQFError(f"{k} eigenvalues of a {len(like)} × {len(like)} matrix; ask for 1 to {len(like) - 1}")
    kind = np.float64 if like.dtype == torch.float64 else np.float32
    made = 0
    with progress.stage("Lanczos", total=None, unit="products") as stage:

        def act(v: np.ndarray) -> np.ndarray:
            nonlocal made
            made += 1
            stage.advance(1)
            return product(torch.as_tensor(np.ascontiguousarray(v), dtype=like.dtype).to(like.device)).cpu().numpy()

        operator = LinearOperator((len(like), len(like)), matvec=act, dtype=kind)
        basis = min(len(like), max(20, 3 * k // 2))  # its vectors are made orthogonal on the CPU: not more than needed
        start = np.random.default_rng(seed).standard_normal(len(like)).astype(kind)
        values = eigsh(operator, k=k, which="LA", ncv=basis, tol=tol, v0=start, return_eigenvectors=False)
    return Spectrum(tuple(sorted(map(float, values), reverse=True)), len(like), made)


def trace(product: Product, like: Tensor, probes: int = 8, seed: int = 0) -> float:
    """Σ of all eigenvalues of ``product`` over vectors ``like`` one, as E ξᵀAξ over random signs ξ (Hutchinson)."""
    generator, total = torch.Generator().manual_seed(seed), 0.0
    for _ in range(probes):
        signs = (
            torch.randint(0, 2, (len(like),), generator=generator, dtype=torch.int8).to(like.device).to(like) * 2 - 1
        )
        total += float(torch.dot(signs.double(), product(signs).double()))
    return total / probes


def loss_curvature(
    weights: Mapping[str, Tensor], batches: Callable[[], Iterator[Loss]], total: float
) -> tuple[Product, Tensor]:
    """The Hessian of (1/total) Σ loss(w) over all ``batches``, in some weights; and a vector of its size.

    The gradient is differentiated forwards: differentiated backwards, the gradients at a convolution's weights become
    convolutions with kernels as large as the image.

    Args:
        weights: w by name, where the Hessian is taken.
        batches: every call goes through all batches again; each is a function of w, the summed loss of the batch.
        total: number of samples.
    """
    at = {name: w.detach() for name, w in weights.items()}
    sizes = [w.numel() for w in at.values()]

    def product(v: Tensor) -> Tensor:
        along = {name: part.view_as(w) for (name, w), part in zip(at.items(), v.split(sizes), strict=True)}
        out = torch.zeros_like(v)
        for loss in batches():
            changed: dict[str, Tensor] = jvp(grad(loss), (at,), (along,))[1]
            out += torch.cat([changed[name].reshape(-1) for name in at])
        return out / total

    return product, torch.cat([torch.zeros_like(w).reshape(-1) for w in at.values()])


def row_curvature(problem: QuadraticProblem) -> tuple[Product, Tensor, float]:
    """√S JJᵀ √S/N over all (row, output) pairs, a vector of its size, and λ = μ/N.

    With one ridge strength its eigenvalues plus λ are those of H/N (all others of H/N are λ), and its vectors are as
    long as there are outputs, not weights.
    """
    if problem.ridge.head != problem.ridge.body:
        raise LQFError("the spectrum by rows needs one ridge strength for head and body")
    model, total = problem.model, float(problem.weights.sum())
    root = problem.weights.sqrt()[:, None]

    def product(v: Tensor) -> Tensor:
        u, pulled, out = root * v.view_as(problem.targets), problem.zero(), torch.empty_like(problem.targets)
        for rows, x in problem.inputs.batches():
            pulled += model.vjp(x, constant(u[rows]), problem.fold[rows])
        for rows, x in problem.inputs.batches():
            out[rows] = model.jvp(x, pulled, problem.fold[rows])[1]
        return (root * out).reshape(-1) / total

    return product, torch.zeros_like(problem.targets).reshape(-1), problem.ridge.head / total


def preconditioned_curvature(problem: QuadraticProblem, damped: DampedCurvature) -> Product:
    """P^(−1/2) H P^(−1/2): the eigenvalues of P⁻¹H, in a symmetric form."""
    return lambda v: damped.inverse_root(problem.product(damped.inverse_root(v)))
