"""The ridge regression that is released: rows φ of bounded length, targets of bounded size, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.errors import LQFError


@dataclass(frozen=True, eq=False)
class Bounded:
    """One of n images' rows may be replaced by any others within the bounds.

    Attributes:
        gram: (m, m) φφᵀ, of all (row, output) pairs; None: it comes from ``rows``.
        rows: (m, D) φ, where all outputs share them; None: only ``gram`` is known.
        residual: (m, C) or (m, 1), r.
        n: images.
        row, target: R and T.
    """

    gram: Tensor | None
    rows: Tensor | None
    residual: Tensor
    n: int
    row: float
    target: float

    def product(self, a: Tensor) -> Tensor:
        """φφᵀa."""
        if self.rows is not None:
            return self.rows @ (self.rows.T @ a)
        assert self.gram is not None
        return self.gram @ a

    def solve(self, mu: float) -> Tensor:
        """a = (φφᵀ + μ)⁻¹ r, refined once; the optimum is φᵀa."""
        solve = self._factorised(mu)
        a = solve(self.residual)
        return a + solve(self.residual - self.product(a) - mu * a)

    def check(self, a: Tensor, mu: float, most: float) -> None:
        """Refuse weights φᵀa that are farther from the optimum than ``most``, by strong convexity: ‖∇‖/μ."""
        left = self.residual - self.product(a) - mu * a
        distance = float((left * self.product(left)).sum().clamp_min(0).sqrt()) / mu
        if not distance <= most:
            raise LQFError(
                f"the solution is {distance:.1e} from the optimum and the noise allows {most:.1e}; nothing was released"
            )

    def _factorised(self, mu: float) -> _Solve:
        """Through the smaller of φφᵀ and φᵀφ."""
        if self.rows is None or len(self.rows) <= self.rows.shape[1]:
            return _Solve(_cholesky(self.gram if self.rows is None else self.rows @ self.rows.T, mu), None, mu)
        return _Solve(_cholesky(self.rows.T @ self.rows, mu), self.rows, mu)


@dataclass(frozen=True)
class _Solve:
    """(φφᵀ + μ)⁻¹ b, from that matrix's factor, or from that of φᵀφ + μ."""

    factor: Tensor
    rows: Tensor | None
    mu: float

    def __call__(self, b: Tensor) -> Tensor:
        if self.rows is None:
            return torch.cholesky_solve(b, self.factor)
        return (b - self.rows @ torch.cholesky_solve(self.rows.T @ b, self.factor)) / self.mu


def _cholesky(gram: Tensor | None, mu: float) -> Tensor:
    assert gram is not None
    return torch.linalg.cholesky(gram + mu * torch.eye(len(gram)).to(gram))
