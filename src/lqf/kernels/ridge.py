"""Ridge regression from one factorisation: the solution, and exact leave-one-out, for every ridge strength.

In the dual of DESIGN's objective, with rows scaled by the square roots of their sample weights,

    K = JJᵀ = QΛQᵀ,   G = K + μI,   a = G⁻¹ r,   e = r − Ka = μa,   H = K G⁻¹ (the hat matrix).

Removing a set S of rows (a sample, all views of an image) and solving again changes the residual there to

    e_S^loo = (I − H_SS)⁻¹ e_S,          I − H = Q diag(μ/(Λ+μ)) Qᵀ + (I − QQᵀ),

so that one eigendecomposition serves every μ and every S. The second form of I − H has no cancellation when μ is small
against Λ, which is exactly where 1 − H_ii would lose its digits. Q may be thin (more rows than features); the last term
is then what the features cannot reach.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor


class KernelRidge:
    """A factorised kernel K = QΛQᵀ over n weighted rows.

    Several right-hand sides (n, C) share the kernel: the head, where K stands for K ⊗ I_C, uses one column per class;
    the dense dual flattens its (sample, class) pairs into rows and has one column.

    Args:
        q: (n, r) orthonormal columns.
        lam: (r,) eigenvalues, not negative.
        weights: (n,) positive weight of each row, already inside the kernel as √s K √s.
        groups: (n,) integers; rows with the same number leave together. Default: each row alone.
    """

    def __init__(self, q: Tensor, lam: Tensor, weights: Tensor, groups: Tensor | None = None):
        self.q, self.lam, self.weights = q, lam.clamp_min(0), weights
        self.groups = torch.arange(len(q), device=q.device) if groups is None else groups.to(q.device)

    @classmethod
    def from_kernel(cls, kernel: Tensor, weights: Tensor, groups: Tensor | None = None) -> KernelRidge:
        """Factorise an unweighted kernel matrix (n, n), in float64."""
        root = weights.double().sqrt().to(kernel.device)
        kernel = root[:, None] * kernel.double()  # in place of the one that was given: they may fill the memory
        kernel *= root
        lam, q = torch.linalg.eigh(kernel)
        return cls(q, lam, weights.double().to(kernel.device), groups)

    @classmethod
    def from_features(cls, features: Tensor, weights: Tensor, groups: Tensor | None = None) -> KernelRidge:
        """Factorise K = ZZᵀ from the features Z (n, p), through the smaller of ZZᵀ and ZᵀZ, in float64."""
        z = weights.double().sqrt().to(features.device)[:, None] * features.double()
        n, p = z.shape
        if n <= p:
            lam, q = torch.linalg.eigh(z @ z.T)
            return cls(q, lam, weights.double().to(z.device), groups)
        lam, v = torch.linalg.eigh(z.T @ z)
        keep = lam > lam[-1].clamp_min(1e-300) * p * torch.finfo(lam.dtype).eps
        q, lam = z @ v[:, keep] / lam[keep].sqrt(), lam[keep]
        q, upper = torch.linalg.qr(q)  # restores the orthogonality that small eigenvalues lose
        return cls(q * upper.diagonal().sign(), lam, weights.double().to(z.device), groups)

    def among(self, rows: Tensor, n: int) -> KernelRidge:
        """The same over ``n`` rows, of which these are ``rows``; the others have no weight and stay as they are."""
        q, weights = self.q.new_zeros(n, self.q.shape[1]), self.weights.new_ones(n)
        q[rows], weights[rows] = self.q, self.weights
        return KernelRidge(q, self.lam, weights)

    @property
    def scale(self) -> float:
        """Mean eigenvalue of K: the natural unit of μ."""
        return float(self.lam.sum() / len(self.q))

    @cached_property
    def _root(self) -> Tensor:
        return self.weights.sqrt()[:, None]

    @cached_property
    def _thin_gap(self) -> Tensor:
        """1 − Σ_k Q_ik² for every row, exactly zero when Q is square."""
        gap = 1 - self.q.square().sum(1)
        return torch.zeros_like(gap) if self.q.shape[0] == self.q.shape[1] else gap.clamp_min(0)

    def dual(self, r: Tensor, mu: float) -> Tensor:
        """Coefficients a (n, C), weights inside: the primal solution is δ = Jᵀa with the rows of J unweighted.

        a = √s Q (Λ+μ)⁻¹ Qᵀ √s r. What Q cannot reach is orthogonal to all rows of J and is left out exactly, instead of
        being divided by a small μ.
        """
        c = self.q.T @ (self._root * r.to(self.q))
        return self._root * (self.q @ (c / (self.lam + mu)[:, None]))

    def residual(self, r: Tensor, mu: float) -> Tensor:
        """e = r − J δ*, (n, C)."""
        return self._left_out(self._root * r.to(self.q), mu) / self._root

    def loo(self, r: Tensor, mu: float) -> Tensor:
        """Leave-one-out residual of every row (its whole group left out), (n, C)."""
        return self.leave_out(self.residual(r, mu), mu)

    def leave_out(self, e: Tensor, mu: float) -> Tensor:
        """(I − H_SS)⁻¹ e_S for every group S: what given residuals e (n, C) become when their group leaves."""
        e = self._root * e.to(self.q)
        out = torch.empty_like(e)
        for rows in self._blocks:
            block = self.left_out_block(rows, mu)
            out[rows] = e[rows] / block if rows.shape[1] == 1 else torch.linalg.solve(block, e[rows])
        return out / self._root

    def left_out_block(self, rows: Tensor, mu: float) -> Tensor:
        """I − H_SS for a stack of groups ``rows`` (g, m) of equal size: (g, m, m)."""
        q = self.q[rows]  # (g, m, r)
        damp = mu / (self.lam + mu)
        if rows.shape[1] == 1:
            return ((q.square() @ damp) + self._thin_gap[rows])[..., None]
        block = (q * damp) @ q.mT
        if self.q.shape[0] == self.q.shape[1]:
            return block
        return block + torch.eye(rows.shape[1]).to(q) - q @ q.mT

    def _left_out(self, r: Tensor, mu: float) -> Tensor:
        """(I − H) r without cancellation."""
        c = self.q.T @ r
        out = self.q @ ((mu / (self.lam + mu))[:, None] * c)
        return out if self.q.shape[0] == self.q.shape[1] else out + (r - self.q @ c)

    @cached_property
    def _blocks(self) -> list[Tensor]:
        return by_size(self.groups, self.q.shape[1])


def by_size(groups: Tensor, width: int) -> list[Tensor]:
    """Row numbers of every group, stacked by group size: (g, m) tensors, whose rows with ``width`` entries each fit."""
    order = torch.argsort(groups, stable=True)
    _, counts = torch.unique_consecutive(groups[order], return_counts=True)
    starts = counts.cumsum(0) - counts
    out = []
    for m in counts.unique().tolist():
        first = starts[counts == m]
        rows = order[first[:, None] + torch.arange(m, device=order.device)]
        out += list(rows.split(max(1, int(2e7) // max(1, m * width))))
    return out
