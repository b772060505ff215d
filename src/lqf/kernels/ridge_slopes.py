"""Derivatives of ridge regression by its strengths, exact, from the factorisation that solved it.

With G = K + μI, N = μG⁻¹ = I − H in weighted rows and e_S^loo = N_SS⁻¹ (N r)_S, for any direction N′ of N

    (e_S^loo)′ = N_SS⁻¹ ((N′r)_S − N′_SS e_S^loo),

    along log μ:  N′ = Q diag(μΛ/(Λ+μ)²) Qᵀ,        a′ = −μ G⁻²r,
    along K′:     N′ = −μ G⁻¹K′G⁻¹,                 a′ = −G⁻¹K′G⁻¹r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.kernels.ridge import KernelRidge, by_size


@dataclass(frozen=True, eq=False)
class RidgeSlopes:
    """Slopes at one strength.

    Attributes:
        ridge: the factorised kernel.
        mu: μ.
        r: (n, C) right-hand side.
    """

    ridge: KernelRidge
    mu: float
    r: Tensor

    def dual_by_mu(self) -> Tensor:
        """da/dlog μ, (n, C)."""
        q, lam = self.ridge.q, self.ridge.lam
        return self._root * (q @ ((-self.mu / (lam + self.mu).square())[:, None] * (q.T @ self._rhs)))

    def dual_along(self, kernel: Tensor) -> Tensor:
        """a′ for a direction K′ (n, n) of the weighted kernel."""
        return -self._root * self._inverse(kernel @ self._inverse(self._rhs))

    def loo_by_mu(self) -> Tensor:
        """de^loo/dlog μ, (n, C)."""
        q, lam = self.ridge.q, self.ridge.lam
        d = self.mu * lam / (lam + self.mu).square()
        e = q @ (d[:, None] * (q.T @ self._rhs))
        return self._left_out(e, lambda rows: (q[rows] * d) @ q[rows].mT)

    def loo_along(self, kernel: Tensor) -> Tensor:
        """(e^loo)′ for a direction K′ (n, n) of the weighted kernel; Q is square."""
        whole = -self.mu * self._inverse(self._inverse(kernel).T)
        return self._left_out(whole @ self._rhs, lambda rows: whole[rows[:, :, None], rows[:, None, :]])

    @property
    def _root(self) -> Tensor:
        return self.ridge.weights.sqrt()[:, None]

    @property
    def _rhs(self) -> Tensor:
        return self._root * self.r.to(self.ridge.q)

    def _inverse(self, y: Tensor) -> Tensor:
        """G⁻¹y for y in the range of Q."""
        q = self.ridge.q
        return q @ ((q.T @ y) / (self.ridge.lam + self.mu)[:, None])

    def _left_out(self, e: Tensor, block_slope: Callable[[Tensor], Tensor]) -> Tensor:
        """(e^loo)′ from (N r)′ and the blocks of N′."""
        residual = self._root * self.ridge.residual(self.r, self.mu)
        out = torch.empty_like(e)
        for rows in by_size(self.ridge.groups, self.ridge.q.shape[1]):
            block = self.ridge.left_out_block(rows, self.mu)
            x = torch.linalg.solve(block, residual[rows])
            out[rows] = torch.linalg.solve(block, e[rows] - block_slope(rows) @ x)
        return out / self._root
