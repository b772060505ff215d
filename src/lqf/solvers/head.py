"""The closed-form head: ridge regression on frozen features, exact in everything, for every ridge strength at once.

This is LQF restricted to the last layer. It is always solved first: it gives the scale of the ridge, a baseline with
its exact leave-one-out error, and the head around which the body is linearised.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.kernels.ridge import KernelRidge
from lqf.linear import head_products
from lqf.linear.model import with_one


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
    def of(
        cls, features: Tensor, residual: Tensor, weights: Tensor, groups: Tensor, gram: Tensor | None = None
    ) -> Head:
        """Factorise in float64, the smaller of z̃z̃ᵀ and z̃ᵀz̃; ``gram``: z̃z̃ᵀ (n, n), where it is known."""
        if len(features) <= features.shape[1] + 1:
            gram = head_products.gram(features) if gram is None else gram
            ridge = KernelRidge.from_kernel(gram, weights, groups)
        else:
            ridge = KernelRidge.from_features(with_one(features), weights, groups)
        return cls(features, residual.double(), weights, groups, ridge)

    def among(self, rows: Tensor) -> Head:
        """The head of some rows alone."""
        own = (self.features, self.residual, self.weights, self.groups)
        return self.of(*(t[rows.to(t.device)] for t in own))

    def solve(self, mu: float) -> Tensor:
        """V* (C, p+1) in float64, minimising ½ Σ s‖r − Vz̃‖² + ½μ‖V‖²."""
        return head_products.vjp(self.ridge.dual(self.residual, mu), self.features)

    def solve_some(self, keep: Tensor, mu: float) -> Tensor:
        """V* (C, p+1) of the rows in the mask ``keep`` (n,) alone, through the smaller of the two normal equations."""
        root = self.weights.double().sqrt()[keep, None].to(self.features.device)
        r = root * self.residual.to(root)[keep]
        if self.ridge.q.shape[0] > self.ridge.q.shape[1]:
            z = root * with_one(self.features[keep]).double()
            return _solve(z.T @ z, z.T @ r, mu).T
        q = self.ridge.q[keep]  # the kernel of some rows is a part of the kernel of all
        a = root.new_zeros(self.residual.shape)
        a[keep] = root * _solve((q * self.ridge.lam) @ q.T, r, mu)
        return head_products.vjp(a, self.features)

    def relative_residual(self, v: Tensor, mu: float) -> float:
        """‖b − HV‖ / ‖b‖ of the normal equations, in float64."""
        s = self.weights.double().to(self.features.device)[:, None]
        r = self.residual.to(s)
        gap = head_products.vjp(s * (r - head_products.jvp(self.features, v)), self.features) - mu * v
        return float(gap.norm() / head_products.vjp(s * r, self.features).norm())


def _solve(gram: Tensor, b: Tensor, mu: float) -> Tensor:
    """(gram + μI)⁻¹ b."""
    gram.diagonal().add_(mu)
    return torch.cholesky_solve(b, torch.linalg.cholesky(gram))
