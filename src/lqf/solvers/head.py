"""The closed-form head: ridge regression on frozen features, exact in everything, for every ridge strength at once.

This is LQF restricted to the last layer. It is always solved first: it gives the scale of the ridge, a baseline with
its exact leave-one-out error, and the head around which the body is linearised.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.kernel_ridge import KernelRidge
from lqf.model import with_one


@dataclass(frozen=True)
class Head:
    """Features and targets of all rows, factorised once.

    Attributes:
        features: (n, p).
        residual: (n, C) targets minus the constant c.
        weights: (n,).
        groups: (n,) rows that leave together.
        ridge: the factorised kernel z̃z̃ᵀ.
    """

    features: Tensor
    residual: Tensor
    weights: Tensor
    groups: Tensor
    ridge: KernelRidge

    @classmethod
    def of(cls, features: Tensor, residual: Tensor, weights: Tensor, groups: Tensor) -> Head:
        """Factorise in float64."""
        ridge = KernelRidge.from_features(with_one(features), weights, groups)
        return cls(features, residual.double(), weights, groups, ridge)

    def solve(self, mu: float) -> Tensor:
        """V* (C, p+1) in float64, minimising ½ Σ s‖r − Vz̃‖² + ½μ‖V‖²."""
        return self.ridge.dual(self.residual, mu).T @ with_one(self.features).double()

    def relative_residual(self, v: Tensor, mu: float) -> float:
        """‖b − HV‖ / ‖b‖ of the normal equations, in float64."""
        z, s = with_one(self.features).double(), self.weights.double().to(self.features.device)[:, None]
        b = (s * self.residual.to(z)).T @ z
        gap = b - (s * (z @ v.T)).T @ z - mu * v
        return float(gap.norm() / b.norm())


def ridge_head(features: Tensor, residual: Tensor, weights: Tensor, mu: float) -> Tensor:
    """V* (C, p+1) for one μ, through the smaller of the two normal equations, in float64."""
    root = weights.double().sqrt()[:, None].to(features.device)
    z, r = root * with_one(features).double(), root * residual.double().to(features.device)
    small, n = min(z.shape), len(z)
    gram = z @ z.T if n <= z.shape[1] else z.T @ z
    gram.diagonal().add_(mu)
    factor = torch.linalg.cholesky(gram)
    if small == n:
        return torch.cholesky_solve(r, factor).T @ z
    return torch.cholesky_solve(z.T @ r, factor).T
