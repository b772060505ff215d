"""The closed-form head: ridge regression on frozen features, exact in everything, for every ridge strength at once.

This is LQF restricted to the last layer. It is always solved first: it gives the scale of the ridge, a baseline with
its exact leave-one-out error, and the head around which the body is linearised. Factorisations are made when they are
asked for: `ridge` serves every strength, `at` one of them at a small part of the cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from lqf.kernels.ridge import KernelRidge
from lqf.kernels.ridge_at import Elimination, RidgeAt
from lqf.linear import head_products
from lqf.linear.model import with_one

_ROUNDING = 1e-9
"""Of the sum of their lengths, what terms that cancel leave."""


@dataclass(frozen=True, eq=False)
class Head:
    """Features and targets of all rows.

    Attributes:
        features: (n, p).
        residual: (n, C) targets minus the constant c.
        weights: (n,).
        groups: (n,) rows that leave together.
        known: z̃z̃ᵀ (n, n), where it was made before.
        made: its factorisation, likewise.
    """

    features: Tensor
    residual: Tensor
    weights: Tensor
    groups: Tensor
    known: Tensor | None = None
    made: KernelRidge | None = None

    @classmethod
    def of(
        cls, features: Tensor, residual: Tensor, weights: Tensor, groups: Tensor, gram: Tensor | None = None
    ) -> Head:
        """In float64; ``gram``: z̃z̃ᵀ (n, n), where it is known."""
        return cls(features, residual.double(), weights, groups, gram)

    def among(self, rows: Tensor) -> Head:
        """The head of some rows alone, by their numbers or a mask."""
        own = (self.features, self.residual, self.weights, self.groups)
        features, residual, weights, groups = (t[rows.to(t.device)] for t in own)
        part = Head(features, residual, weights, groups)
        if self.thin or self.known is None:
            return part
        rows = rows.to(self.known.device)
        return replace(part, known=self.known[rows][:, rows])

    @property
    def thin(self) -> bool:
        """Whether there are more rows than features: everything goes through z̃ᵀz̃ then."""
        return len(self.features) > self.features.shape[1] + 1

    @cached_property
    def gram(self) -> Tensor:
        """z̃z̃ᵀ (n, n)."""
        return head_products.gram(self.features) if self.known is None else self.known

    @cached_property
    def ridge(self) -> KernelRidge:
        """z̃z̃ᵀ, factorised for every ridge strength through the smaller of it and z̃ᵀz̃."""
        if self.made is not None:
            return self.made
        if self.thin:
            return KernelRidge.from_features(with_one(self.features), self.weights, self.groups)
        return KernelRidge.from_kernel(self.gram, self.weights, self.groups)

    @property
    def scale(self) -> float:
        """Mean eigenvalue of the weighted z̃z̃ᵀ: the natural unit of μ."""
        lengths = sum(part.square().sum(1) for _, part in head_products.pieces(self.features))
        return float((self.weights.double().to(self.features.device) * (lengths + 1)).mean())

    def at(self, mu: float) -> Elimination:
        """z̃z̃ᵀ + μI, factorised; by what serves every strength where that was made before."""
        known = self.thin or self.made is not None or "ridge" in vars(self)
        return self.ridge if known else RidgeAt.from_kernel(self.gram, self.weights, mu)

    def solve(self, mu: float) -> Tensor:
        """V* (C, p+1) in float64, minimising ½ Σ s‖r − Vz̃‖² + ½μ‖V‖²."""
        return head_products.vjp(self.ridge.dual(self.residual, mu), self.features)

    def solve_some(self, keep: Tensor, mu: float) -> Tensor:
        """V* (C, p+1) of the rows in the mask ``keep`` (n,) alone, through the smaller of the two normal equations."""
        root = self.weights.double().sqrt()[keep, None].to(self.features.device)
        r = root * self.residual.to(root)[keep]
        if self.thin:
            z = root * with_one(self.features[keep]).double()
            return _solve(z.T @ z, z.T @ r, mu).T
        a = root.new_zeros(self.residual.shape)
        a[keep] = root * _solve(root * self.gram[keep][:, keep] * root.T, r, mu)
        return head_products.vjp(a, self.features)

    def relative_residual(self, v: Tensor, mu: float) -> float:
        """‖b − HV‖ / ‖b‖ of the normal equations, in float64; where b is nothing but rounding, over what it cancels."""
        s = self.weights.double().to(self.features.device)[:, None]
        r = self.residual.to(s)
        gap = head_products.vjp(s * (r - head_products.jvp(self.features, v)), self.features) - mu * v
        b = float(head_products.vjp(s * r, self.features).norm())
        squares = sum(
            (z.square().sum(1) for _, z in head_products.pieces(self.features)), start=torch.ones_like(r[:, 0])
        )
        return float(gap.norm()) / max(b, _ROUNDING * float((s * r).norm(dim=1) @ squares.sqrt()))


def _solve(gram: Tensor, b: Tensor, mu: float) -> Tensor:
    """(gram + μI)⁻¹ b."""
    gram.diagonal().add_(mu)
    return torch.cholesky_solve(b, torch.linalg.cholesky(gram))
