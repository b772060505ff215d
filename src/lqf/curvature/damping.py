"""P = A damped, for steps by mini-batches: A knows some views of some images, a batch has directions of its own.

With γ = μ + ρ·tr A/(bC) of the head's and of the body's block (tr A/(NC): the mean square length of an output's
gradient; b: images per step),

    "trace"      A + γI: a direction whose curvature is below γ is not preconditioned;
    "factored"   layer by layer (A_l + π√γ I) ⊗ (G_l + √γ/π I), π = √(mean eigenvalue of A_l over that of G_l): the
                 damping is split between the factors, and falls off with them;
    "none"       A + μI.

K-FAC's eigenvalues are measured ones (`lqf.curvature.ekfac`), not products. Their marginals a, g with ag ≈ d stand for
the factors', and d + √γ(πg + a/π) + γ for the damped product. Normalisation layers and the head, whose second factor is
the identity, have d + γ under "factored" too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from lqf.curvature.blocks import Channelwise, Kronecker
from lqf.curvature.kfac import gather_kronecker, scatter_kronecker
from lqf.curvature.preconditioner import Preconditioner
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge

DampingKind = Literal["factored", "trace", "none"]


@dataclass(frozen=True)
class Preconditioned:
    """How much of A's spectrum lies above the damping that is added to it; below it a step is a plain gradient's.

    Attributes:
        by_trace: share of the trace of A.
        by_count: share of all directions.
    """

    by_trace: float
    by_count: float

    def to_dict(self) -> dict[str, float]:
        """JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Damping:
    """How P is damped.

    Attributes:
        rho: ρ.
        kind: see the module.
        batch: b, images per step.
    """

    rho: float
    kind: DampingKind
    batch: int

    def of(self, curvature: Preconditioner, problem: QuadraticProblem) -> DampedCurvature:
        """P for the ridge strengths of ``problem``."""
        rho = 0.0 if self.kind == "none" else self.rho / (self.batch * problem.model.n_outputs)
        head, body = rho * head_trace(curvature), rho * body_trace(curvature)
        ridge = problem.ridge
        stages = tuple((name, mu + body) for name, mu in ridge.stages)
        damped = problem.with_ridge(Ridge(ridge.head + head, ridge.body + body, stages))
        return DampedCurvature(curvature, damped, self.kind)


@dataclass(frozen=True)
class DampedCurvature:
    """P, with the damping in the ridge strengths of ``problem``: γ of the head and of every weight of the body."""

    curvature: Preconditioner
    problem: QuadraticProblem
    kind: DampingKind

    def solve(self, v: Tensor) -> Tensor:
        """P⁻¹ v."""
        if self.kind != "factored":
            return self.curvature.solve(v, self.problem)
        return self._factored(v, torch.reciprocal)

    def inverse_root(self, v: Tensor) -> Tensor:
        """P^(−1/2) v."""
        if self.kind != "factored":
            return self.curvature.inverse_root(v, self.problem)
        return self._factored(v, torch.rsqrt)

    def preconditioned(self) -> Preconditioned:
        """The share of the spectrum whose eigenvalues are larger than what is added to them."""
        ridge, body = self.problem.ridge, self.curvature.body
        found = [_above(self.curvature.head.d, ridge.head, self.problem.model.head_size)]
        for name, block in body.kronecker.items():
            layer = body.layers[name]
            gamma, d = ridge.of(layer.weight or layer.bias or ""), body.share * block.d
            added = self._split[name].inner - d if self.kind == "factored" else gamma
            found.append(_above(d, added, block.size))
        for name, channel in body.channels.items():
            found.append(_above(body.share * channel.lam, ridge.of(body.channel_names[name][0]), channel.lam.numel()))
        above, trace, count, size = (sum(column) for column in zip(*found, strict=True))
        return Preconditioned(above / trace if trace else 0.0, count / size if size else 0.0)

    @cached_property
    def _split(self) -> dict[str, Factored]:
        """Every layer's eigenvalues under "factored"."""
        ridge, body, found = self.problem.ridge, self.curvature.body, {}
        for name, block in body.kronecker.items():
            layer = body.layers[name]
            found[name] = factored(replace(block, d=body.share * block.d), ridge.of(layer.weight or layer.bias or ""))
        return found

    def _factored(self, v: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
        ridge, body = self.problem.ridge, self.curvature.body
        head, rest = self.problem.model.split(v)
        acted = self.curvature.head.solve if of is torch.reciprocal else self.curvature.head.inverse_root
        parts, out = body.layout.views(rest), torch.empty_like(rest)
        into = body.layout.views(out)
        for name, block in body.kronecker.items():
            layer = body.layers[name]
            scatter_kronecker(layer, into, self._split[name].apply(gather_kronecker(layer, parts, block), of))
        for name, channel in body.channels.items():
            names = body.channel_names[name]
            shared = Channelwise(body.share * channel.lam, channel.u)
            act = shared.solve if of is torch.reciprocal else shared.inverse_root
            solved = act(torch.stack([parts[n].reshape(-1) for n in names], -1), ridge.of(names[0]))
            for k, n in enumerate(names):
                into[n].copy_(solved[:, k].view_as(into[n]))
        return torch.cat([acted(head[None], ridge.head)[0].reshape(-1), out])


@dataclass(frozen=True)
class Factored:
    """A damped Kronecker block by its eigenvalues inside and outside of the two bases, which may be thin.

    Attributes:
        block: its bases.
        inner: (groups, r_g, r_a) inside both.
        left: (groups, r_g, 1) inside G's basis and outside A's.
        right: (groups, 1, r_a) inside A's and outside G's.
        outer: outside both.
    """

    block: Kronecker
    inner: Tensor
    left: Tensor
    right: Tensor
    outer: Tensor

    def apply(self, v: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
        """The block with every eigenvalue λ replaced by of(λ), times v (groups, o, p)."""
        u_a, u_g = self.block.u_a, self.block.u_g
        inner, left, right, outer = of(self.inner), of(self.left), of(self.right), of(self.outer)
        c = self.block.to_basis(v)
        if not self.block.thin:
            return self.block.from_basis(c * inner)
        assert u_g is not None
        mixed = self.block.from_basis(c * (inner - left - right + outer))
        return mixed + v * outer + u_g @ ((u_g.mT @ v) * (left - outer)) + ((v @ u_a) * (right - outer)) @ u_a.mT


def factored(block: Kronecker, gamma: float) -> Factored:
    """The eigenvalues of (A + π√γ I) ⊗ (G + √γ/π I), the product AG by the measured ones."""
    d = block.d
    total = d.sum((-1, -2), keepdim=True)
    root = total.clamp_min(torch.finfo(d.dtype).tiny).sqrt()
    a, g = d.sum(-2, keepdim=True) / root, d.sum(-1, keepdim=True) / root  # both have trace √total
    o = block.d.shape[-2] if block.u_g is None else block.u_g.shape[-2]
    pi, half = (o / block.u_a.shape[-2]) ** 0.5, gamma**0.5
    left, right = half * pi * g + gamma, half / pi * a + gamma
    return Factored(block, d + left + right - gamma, left, right, torch.full_like(total, gamma))


def head_trace(curvature: Preconditioner) -> float:
    """Of the head's block of A."""
    return float(curvature.head.d.double().sum())


def body_trace(curvature: Preconditioner) -> float:
    """Of the body's blocks of A."""
    body = curvature.body
    parts = [*(k.d for k in body.kronecker.values()), *(c.lam for c in body.channels.values())]
    return body.share * float(torch.stack([t.double().sum() for t in parts]).sum()) if parts else 0.0


def _above(d: Tensor, added: Tensor | float, size: int) -> tuple[float, float, float, float]:
    """Trace above the damping, the whole trace, number of directions above it, of all."""
    above, wide = d > added, d.double()
    return float(wide[above].sum()), float(wide.sum()), float(above.sum()), float(size)
