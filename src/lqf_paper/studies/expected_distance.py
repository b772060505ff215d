"""The paper's formula for the expected distance of SGD from the optimum of a quadratic problem, by Lanczos quadrature.

With batches drawn independently, momentum 0 and a constant rate, E[w_t − w*] = (I − ηP⁻¹H)ᵗ (w_0 − w*) exactly. The
same holds with momentum and a rate that changes, with the polynomial p_t that they make of P⁻¹H: along an eigenvalue θ

    v ← m·v + θe,   e ← e − η_t·v.

In the energy norm, with b̃ = P^(−1/2) b and S = P^(−1/2) H P^(−1/2),

    ‖p_t(P⁻¹H)(w_0 − w*)‖²_H = b̃ᵀ S⁻¹ p_t(S)² b̃ ≈ ‖b̃‖² Σ_j ω_j p_t(θ_j)²/θ_j

over the Ritz values θ_j and weights ω_j of k Lanczos steps from b̃: k products, for all t, rates and momenta.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lqf.utils.progress import SILENT, Progress

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Ritz:
    """Eigenvalues of P⁻¹H as seen from b, and their weights, which sum to one.

    Attributes:
        values: θ.
        weights: ω.
    """

    values: tuple[float, ...]
    weights: tuple[float, ...]

    def distance(self, rates: Sequence[float], momentum: float) -> float:
        """‖E w_t − w*‖_H over ‖w_0 − w*‖_H after steps at these rates."""
        theta, omega = (torch.tensor(x, dtype=torch.float64) for x in (self.values, self.weights))
        e, v = torch.ones_like(theta), torch.zeros_like(theta)
        for rate in rates:
            v = momentum * v + theta * e
            e = e - rate * v
        return float(((omega / theta * e.square()).sum() / (omega / theta).sum()).sqrt())

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"values": list(self.values), "weights": list(self.weights)}


def ritz(product: Product, start: Tensor, steps: int, progress: Progress = SILENT) -> Ritz:
    """From ``steps`` Lanczos steps of a positive definite S, every vector orthogonalised twice against all before."""
    q = start / torch.linalg.vector_norm(start, dtype=torch.float64).to(start)
    basis, alpha, beta = [q], [], []
    with progress.stage("Lanczos", total=steps, unit="products") as stage:
        for k in range(min(steps, len(start))):
            w = product(basis[k])
            alpha.append(float(torch.dot(w.double(), basis[k].double())))
            for _ in range(2):
                for u in basis:
                    w = w - torch.dot(w.double(), u.double()).to(w) * u
            length = float(torch.linalg.vector_norm(w, dtype=torch.float64))
            stage.advance(1)
            if length < 1e-10 * max(map(abs, alpha)) or k + 1 == min(steps, len(start)):
                break
            beta.append(length)
            basis.append(w / length)
    t = torch.diag(torch.tensor(alpha, dtype=torch.float64))
    if beta:
        off = torch.tensor(beta, dtype=torch.float64)
        t += torch.diag(off, 1) + torch.diag(off, -1)
    theta, u = torch.linalg.eigh(t)
    positive = theta > 0
    omega = u[0].square()[positive]
    return Ritz(tuple(theta[positive].tolist()), tuple((omega / omega.sum()).tolist()))
