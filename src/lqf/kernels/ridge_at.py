"""Ridge regression at one ridge strength, by a Cholesky factorisation: a small part of an eigendecomposition's cost.

    (K + μI) = LLᵀ,     a = √s (K + μI)⁻¹ √s r,     e = r − Ka = μ (K + μI)⁻¹ √s r / √s,

with rows scaled by the square roots of their weights as in `lqf.kernels.ridge`. It is what the elimination of a head
needs where the strength is fixed, as in refits without a fold.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor


class Elimination(Protocol):
    """What is left of outputs, and which head explains them: by any factorisation."""

    def dual(self, r: Tensor, mu: float) -> Tensor:
        """Coefficients a (n, C)."""
        ...

    def residual(self, r: Tensor, mu: float) -> Tensor:
        """e = r − Jδ*, (n, C)."""
        ...

    def among(self, rows: Tensor, n: int) -> Elimination:
        """The same over ``n`` rows, of which these are ``rows``; the others have no weight and stay as they are."""
        ...


class RidgeAt:
    """A factorised K + μI over weighted rows.

    Args:
        factor: (m, m) L, of the rows that count.
        weights: (m,) theirs.
        mu: μ.
        rows: (m,) their numbers among ``n``; None: there are no others. Others have no weight and stay as they are.
        n: all rows.
    """

    def __init__(self, factor: Tensor, weights: Tensor, mu: float, rows: Tensor | None = None, n: int | None = None):
        self.factor, self.mu, self.rows, self.n = factor, mu, rows, n
        self._root = weights.sqrt()[:, None]

    @classmethod
    def from_kernel(cls, kernel: Tensor, weights: Tensor, mu: float) -> RidgeAt:
        """Factorise an unweighted kernel matrix (n, n), in float64."""
        weights = weights.double().to(kernel.device)
        root = weights.sqrt()
        system = root[:, None] * kernel.double() * root
        system.diagonal().add_(mu)
        return cls(torch.linalg.cholesky(system), weights, mu)

    def among(self, rows: Tensor, n: int) -> RidgeAt:
        """The same over ``n`` rows, of which these are ``rows``."""
        return RidgeAt(self.factor, self._root[:, 0].square(), self.mu, rows.to(self.factor.device), n)

    def dual(self, r: Tensor, mu: float) -> Tensor:
        """Coefficients a (n, C), weights inside, as `KernelRidge.dual` gives them."""
        r = r.to(self.factor)
        a = self._root * self._solve(self._own(r), mu)
        return a if self.rows is None else torch.zeros_like(r).index_copy_(0, self.rows, a)

    def residual(self, r: Tensor, mu: float) -> Tensor:
        """e = r − Jδ*, (n, C)."""
        r = r.to(self.factor)
        e = mu * self._solve(self._own(r), mu) / self._root
        return e if self.rows is None else r.index_copy(0, self.rows, e)

    def _own(self, r: Tensor) -> Tensor:
        return r if self.rows is None else r[self.rows]

    def _solve(self, r: Tensor, mu: float) -> Tensor:
        """(K + μI)⁻¹ √s r."""
        if not math.isclose(mu, self.mu, rel_tol=1e-9):
            raise ValueError(f"the kernel was factorised for a ridge strength of {self.mu}, not of {mu}")
        return torch.cholesky_solve(self._root * r, self.factor)
