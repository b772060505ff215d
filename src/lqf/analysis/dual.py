"""Exact answers from the factorised dual: leave-one-out, influence, information, counterfactuals.

With rows scaled by √s, K = QΛQᵀ, e = μ(K + μ)⁻¹r and C = I − H = Q μ/(Λ+μ) Qᵀ. For other images with kernel rows k,

    f = base + k a,     a = (K + μ)⁻¹ r,     P = k (K + μ)⁻¹.

Let the weights of a set T of rows become s(1 + ρ) and their residuals at δ = 0 change by Δr. The new residuals there,
and the new outputs, are those of the problem solved again:

    e'_T = [(1 + ρ) − C_TT ρ]⁻¹ (e_T + C_TT Δr_T),        f' = f + P_T Δr_T + P_T ρ e'_T.

ρ = −1 leaves rows out: e'_T = C_TT⁻¹ e_T is the leave-one-out residual, and f' − f = −P_T e'_T their influence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lqf.analysis.elimination import order_of_leaving, squared_changes
from lqf.analysis.units import Units
from lqf.kernels.ridge import KernelRidge, by_size
from lqf.linear.inputs import average_views

AT_ONCE = 64
"""Images whose responses, and what leaving out every unit changes there, are held at a time."""


@dataclass(frozen=True)
class Dual:
    """A factorised problem over N samples in V views each, n = N·V rows.

    Attributes:
        ridge: the factorised kernel over (row, output) pairs (dense dual), or over rows, shared by all outputs (head).
        mu: the head's ridge strength.
        residual: (n, C) r, float64.
        n_views: V.
    """

    ridge: KernelRidge
    mu: float
    residual: Tensor
    n_views: int

    @property
    def n_outputs(self) -> int:
        """C."""
        return self.residual.shape[1]

    @property
    def shared(self) -> bool:
        """Whether all outputs share the kernel (the head alone)."""
        return len(self.ridge.q) == len(self.residual)

    @property
    def pairs(self) -> int:
        """Kernel rows per sample."""
        return self.n_views * (1 if self.shared else self.n_outputs)

    @cached_property
    def _r(self) -> Tensor:
        """(m, 1), or (n, C) where the outputs share the kernel."""
        return (self.residual if self.shared else self.residual.reshape(-1, 1)).to(self.ridge.q)

    @cached_property
    def e(self) -> Tensor:
        """Residuals at the optimum, in the kernel's layout."""
        return self.ridge.residual(self._r, self.mu)

    @cached_property
    def a(self) -> Tensor:
        """Dual coefficients, in the kernel's layout."""
        return self.ridge.dual(self._r, self.mu)

    # --- leaving out --------------------------------------------------------------------------------------------------

    def left_out(self, units: Units) -> Tensor:
        """Residuals of all rows, each unit left out in turn, in the kernel's layout."""
        groups = units.member.repeat_interleave(self.pairs)
        ridge = KernelRidge(self.ridge.q, self.ridge.lam, self.ridge.weights, groups)
        return ridge.leave_out(self.e, self.mu)

    def out_of_sample(self, units: Units) -> Tensor:
        """(n, C) leave-one-out residuals."""
        return self.left_out(units).reshape(self.residual.shape)

    def outputs(self, base: Tensor, k: Tensor) -> Tensor:
        """f (Q, C) of images with outputs ``base`` (Q, C) at δ = 0 and kernel rows ``k``."""
        return base.to(k) + (k @ self.a).reshape(base.shape)

    def response(self, k: Tensor) -> Tensor:
        """P = k (K + μ)⁻¹: how the outputs answer to each training target, (Q, n) or (Q·C, n·C)."""
        return self.ridge.dual(k.T, self.mu).T

    def effects(self, p: Tensor, left_out: Tensor, units: Units) -> Tensor:
        """(U, Q, C) f₋S − f = −P_S e_S^loo for every unit."""
        n = len(units.ids)
        if self.shared:
            by_sample = -torch.einsum("qnv,nvc->nqc", p.reshape(len(p), n, -1), left_out.reshape(n, -1, self.n_outputs))
        else:
            by_sample = -(p.reshape(len(p), n, -1) * left_out.reshape(n, -1)).sum(-1).T.reshape(n, -1, self.n_outputs)
        return units.add_up(by_sample)

    def effects_on_sums(self, p: Tensor, left_out: Tensor, units: Units) -> Tensor:
        """(U, Q) likewise of sums of outputs, from their responses P (Q, n·C)."""
        n = len(units.ids)
        by_sample = -(p.reshape(len(p), n, -1) * left_out.reshape(n, -1)).sum(-1).T  # (N, Q)
        return units.add_up(by_sample)

    def information(self, responses: Iterator[tuple[Tensor, Tensor | None]], units: Units) -> Tensor:
        """(U,) Σ over images of ‖f − f₋S‖², from pieces of P; with the samples they belong to, where these are
        training samples: the effect of a unit on its own members does not count.
        """
        width = 1 if self.shared else self.n_outputs
        pieces = ((p, None if s is None else units.member[s].repeat_interleave(width)) for p, s in responses)
        return squared_changes(pieces, self.left_out(units), units)

    def own_responses(self, at_once: int = AT_ONCE) -> Iterator[tuple[Tensor, Tensor]]:
        """P of the training samples themselves, each through its own head, in pieces, with their numbers."""
        shrink, root = self.ridge.lam / (self.ridge.lam + self.mu), self.ridge.weights.sqrt()
        width = 1 if self.shared else self.n_outputs
        for samples in torch.arange(len(self.residual) // self.n_views).split(at_once):
            rows = (samples[:, None] * self.pairs + torch.arange(self.pairs)).flatten().to(root.device)
            p = (self.ridge.q[rows] * shrink) @ self.ridge.q.T * root / root[rows, None]
            yield average_views(p.view(-1, width, p.shape[1]), self.n_views).flatten(0, 1), samples

    def leaving(self, p: Tensor | None, units: Units, *, most: bool, steps: int) -> Tensor:
        """(U,) the order in which units leave, by their information on images with responses ``p`` (None: on the other
        training samples), measured again as they go (`lqf.analysis.elimination`).
        """
        return order_of_leaving(self.ridge, self.mu, self.e, units, p, n_views=self.n_views, most=most, steps=steps)

    # --- uncertainty --------------------------------------------------------------------------------------------------

    def noise(self, units: Units) -> float:
        """σ² of one target, Σ s e·e^loo / (N·C): in its model E ẽ_SᵀB⁻¹ẽ_S = σ²|S| with B = I − H_SS."""
        s = self.ridge.weights[:, None]
        return float((s * self.e * self.left_out(units)).sum()) / (len(units.ids) * self.n_outputs)

    def covariance(self, p: Tensor, k: Tensor, own: Tensor) -> Tensor:
        """(Q, C, C) J_x H⁻¹ J_xᵀ = (k(x, x) − P k_xᵀ)/μ, from responses, kernel rows and ``own`` = k(x, x): (Q, C, C),
        or (Q,) where the outputs share the kernel.
        """
        if own.ndim == 1:
            variance = (own.to(p) - (p * k).sum(1)).clamp_min(0) / self.mu
            return variance[:, None, None] * torch.eye(self.n_outputs).to(p)
        p, k = (t.view(-1, self.n_outputs, t.shape[1]) for t in (p, k))
        found = (own.to(p) - p @ k.mT) / self.mu
        found = (found + found.mT) / 2
        variances = found.diagonal(dim1=1, dim2=2)
        variances.clamp_(min=0)
        return found

    def unexplained(self, variance: Tensor, own: Tensor) -> Tensor:
        """(Q,) mean variances of the outputs over those before any training, from k(x, x) as of `covariance`."""
        prior = own if own.ndim == 1 else own.diagonal(dim1=1, dim2=2).mean(1)
        return variance * self.mu / prior.to(variance)

    def left_out_unexplained(self, units: Units) -> Tensor:
        """(N,) the same of every training sample without its unit, averaged over its views.

        J_S H₋S⁻¹ J_Sᵀ of weighted rows is B⁻¹ − I with B = I − H_SS, J_S M⁻¹ J_Sᵀ is K_SS/μ.
        """
        out = torch.empty(len(units.ids), dtype=torch.float64, device=self.ridge.q.device)
        width, q = self.pairs // self.n_views, self.ridge.q
        for rows in by_size(units.member.repeat_interleave(self.pairs).to(out.device), q.shape[1]):
            root = self.ridge.weights[rows].sqrt()
            variance = torch.linalg.inv(self.ridge.left_out_block(rows, self.mu))
            variance.diagonal(dim1=1, dim2=2).sub_(1)
            both = torch.stack([variance, (q[rows] * self.ridge.lam) @ q[rows].mT / self.mu])
            both = both / (root[:, :, None] * root[:, None, :])
            one = (rows.shape[1] // self.pairs, self.n_views, width)
            left, prior = torch.einsum("tgkvckwc->tgk", both.view(2, len(rows), *one, *one))
            out[rows[:, :: self.pairs] // self.pairs] = left.clamp_min(0) / prior
        return out

    # --- changed data -------------------------------------------------------------------------------------------------

    def changed(self, p: Tensor, samples: Tensor, rho: Tensor, shift: Tensor) -> Tensor:
        """(Q, C) f' − f when the weights of some samples become s(1 + ρ) and their targets move by ``shift``.

        Args:
            p: the images' responses.
            samples: (k,) numbers.
            rho: (k,).
            shift: (k, C).
        """
        rows, moved = self._moved_targets(samples, rho, shift)
        return (p[:, rows] @ moved).reshape(-1, self.n_outputs)

    def moved_by(self, samples: Tensor, rho: Tensor, shift: Tensor) -> Tensor:
        """(n, C) change of the dual coefficients of all rows, f' − f = k Δa; arguments as of `changed`."""
        rows, moved = self._moved_targets(samples, rho, shift)
        every = self._r.new_zeros(self._r.shape).index_copy_(0, rows, moved)
        return self.ridge.dual(every, self.mu).reshape(self.residual.shape)

    def _moved_targets(self, samples: Tensor, rho: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """The rows T of some samples, and Δr_T + ρ e'_T: by what other targets these rows would do the same."""
        rows = (samples[:, None] * self.pairs + torch.arange(self.pairs)).flatten().to(self.ridge.q.device)
        root = self.ridge.weights[rows].sqrt()[:, None]
        d = shift.repeat_interleave(self.n_views, 0).to(self.ridge.q)
        d = d if self.shared else d.reshape(-1, 1)
        rho = rho.to(self.ridge.q).repeat_interleave(self.pairs)
        block = self.ridge.left_out_block(rows[None], self.mu)[0]
        before = root * self.e[rows] + block @ (root * d)
        e = torch.linalg.solve(torch.diag(1 + rho) - block * rho, before) / root
        return rows, d + rho[:, None] * e

    def refitted(self, base: Tensor, k: Tensor, keep: Tensor) -> Tensor:
        """f (Q, C) after fitting the samples ``keep`` alone, from the kept rows of the kernel."""
        rows = (keep[:, None] * self.pairs + torch.arange(self.pairs)).flatten().to(k.device)
        q, root = self.ridge.q[rows], self.ridge.weights[rows].sqrt()[:, None]
        gram = (q * self.ridge.lam) @ q.T
        gram.diagonal().add_(self.mu)
        a = root * torch.cholesky_solve(root * self._r[rows], torch.linalg.cholesky(gram))
        return base.to(k) + (k[:, rows] @ a).reshape(base.shape)
