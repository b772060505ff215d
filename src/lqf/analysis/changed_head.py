"""The factorised head after the weights of some rows have changed, without factorising it again."""

from __future__ import annotations

import torch
from torch import Tensor

from lqf.kernels.ridge import KernelRidge


class ChangedHead(KernelRidge):
    """`KernelRidge` with the weights of the rows T multiplied by 1 + ρ; ρ = −1 leaves them out.

    In rows scaled by √s (see `lqf.analysis.dual`): e'_T = [(1 + ρ) − C_TT ρ]⁻¹ e_T and e' = e − H_:T ρ e'_T. Only what
    the elimination of the head needs is offered: `residual` and `dual`, at the one μ it is made for.

    Args:
        ridge: the factorisation with all weights as they were.
        rows: (k,) T.
        rho: (k,) ρ.
        mu: ridge strength.
    """

    def __init__(self, ridge: KernelRidge, rows: Tensor, rho: Tensor, mu: float):
        super().__init__(ridge.q, ridge.lam, ridge.weights, ridge.groups)
        self.rows, self.rho, self.mu = rows.to(ridge.q.device), rho.to(ridge.q), mu
        block = ridge.left_out_block(self.rows[None], mu)[0]
        self._factors = torch.linalg.lu_factor(torch.diag(1 + self.rho) - block * self.rho)
        self._hat = (ridge.q * (ridge.lam / (ridge.lam + mu))) @ ridge.q[self.rows].T  # (n, k) H_:T

    def residual(self, r: Tensor, mu: float) -> Tensor:
        """e' of all rows, those left out included."""
        assert mu == self.mu
        e = self._root * super().residual(r, mu)
        own = torch.linalg.lu_solve(*self._factors, e[self.rows])
        return (e - self._hat @ (self.rho[:, None] * own)) / self._root

    def dual(self, r: Tensor, mu: float) -> Tensor:
        """a' = S'e'/μ."""
        s = self.weights.clone()
        s[self.rows] *= 1 + self.rho
        return s[:, None] * self.residual(r, mu) / mu
