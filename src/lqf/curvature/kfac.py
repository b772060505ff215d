"""Kronecker-factored curvature (K-FAC) of Σ s_i J_iᵀJ_i, computed once, inverted for any ridge strength.

For a layer with inputs a and output gradients g (see `layers`), L positions and total sample weight N,

    Σ_i s_i J_iᵀJ_i  ≈  c · (Σ s g gᵀ) ⊗ (Σ s a aᵀ) / (N·L),

with the output gradients either exact over the C outputs or drawn with random ±1 combinations u, E[uuᵀ] = I. The
factor c makes the trace exact (measured on some samples): under average pooling the gradients at neighbouring
positions are nearly equal, and the uncorrected product is then too small by up to L. Normalisation layers get their
exact 2 × 2 block per channel; weights of any other kind their exact diagonal, named in a warning.

Many processes add up their sums, share out the eigendecompositions, and exchange the results.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from lqf.curvature.blocks import Channelwise, Gram, Kronecker
from lqf.curvature.parallel_eigh import run_parallel
from lqf.linear.layers import Layer, NormLayer, Record, Tape, in_groups
from lqf.linear.linearize import Layout
from lqf.linear.ridge import Ridge
from lqf.runtime.distributed import ALONE, World


@dataclass(frozen=True)
class Piece:
    """One batch: inputs, sample weights (B,), and cotangents u (R, B, O) with E[Σ_r u_r u_rᵀ] = WᵀW.

    The trace is measured on the rows ``traced`` (B,), a mask; None: on all.
    """

    x: Tensor
    weights: Tensor
    cotangents: Tensor
    traced: Tensor | None = None


@dataclass
class _KroneckerSum:
    layer: Layer
    a: Gram = field(default_factory=Gram)
    g: Gram = field(default_factory=Gram)
    positions: int = 1
    traces: Tensor | None = None  # (4, groups): Σ s‖Σ_l g aᵀ‖², Σ s‖a‖², Σ s‖g‖², Σ s

    def add(self, record: Record, gs: list[Tensor], weights: Tensor, traced: Tensor | None) -> None:
        root = weights.sqrt()[:, None, None, None]
        a = self.layer.patches(record.a)
        self.positions = a.shape[-1]
        if self.layer.bias:
            a = torch.cat([a, torch.ones_like(a[:, :, :1])], 2)
        if not self.layer.weight:
            a = a[:, :, -1:]
        g = torch.stack([self.layer.grads(gi) for gi in gs])  # (R, B, groups, o, L)
        self._measure(a, g, weights, traced)
        self.a.add(_columns(root * a))
        self.g.add(_columns((root * g).flatten(0, 1)))

    def _measure(self, a: Tensor, g: Tensor, weights: Tensor, traced: Tensor | None) -> None:
        if self.traces is None:
            self.traces = torch.zeros(4, a.shape[1], dtype=torch.float64, device=a.device)
        if traced is not None:
            if not bool(traced.any()):
                return
            a, g, weights = a[traced], g[:, traced], weights[traced]
        exact = (g @ a.mT).square().sum((-1, -2)).sum(0)  # (B, groups)
        norm_a, norm_g = a.square().sum((-1, -2)), g.square().sum((-1, -2)).sum(0)
        rows = torch.stack([exact, norm_a, norm_g, torch.ones_like(exact)])
        self.traces += torch.einsum("b,kbg->kg", weights, rows)

    def combine(self, world: World) -> None:
        self.a.combine(world)
        self.g.combine(world)
        assert self.traces is not None
        world.all_reduce_(self.traces)

    @property
    def cost(self) -> float:
        """Of the eigendecompositions."""
        return sum(groups * p * r * r for groups, p, r in (self.a.shape, self.g.shape))

    def eigenpairs(self, mine: bool) -> list[Tensor]:
        """λ_A, U_A, λ_G, U_G; zeros where another process computes them."""
        pairs = [t for gram in (self.a, self.g) for t in (gram.eigenpairs() if mine else gram.nothing())]
        return [t.contiguous() for t in pairs]  # eigh gives columns; products of both layouts round differently

    def block(self, pairs: list[Tensor], total_weight: float, times: float) -> Kronecker:
        lam_a, u_a, lam_g, u_g = pairs
        scale = times * self._correction() / (total_weight * self.positions)
        return Kronecker(u_a, u_g, scale * lam_g[..., :, None] * lam_a[..., None, :])

    def _correction(self) -> float:
        """c: the trace as it is over the trace of the product."""
        assert self.traces is not None
        exact, norm_a, norm_g, weight = self.traces
        factored = float((norm_a * norm_g / (weight * self.positions)).sum())
        return float(exact.sum()) / factored if factored > 0 else 1.0


def _columns(x: Tensor) -> Tensor:
    """(B, groups, p, L) -> (groups, p, B·L)."""
    return x.permute(1, 2, 0, 3).flatten(2)


@dataclass
class _ChannelSum:
    names: tuple[str, ...]
    blocks: Tensor | float = 0.0

    def add(self, grads: dict[str, Tensor], weights: Tensor) -> None:
        rows = torch.stack([grads[n] for n in self.names], -1)  # (B, channels, k)
        self.blocks = self.blocks + (weights[:, None, None] * rows).permute(1, 2, 0) @ rows.permute(1, 0, 2)


AT_A_TIME = 1 << 22
"""Entries of weights without a rule whose gradients are made together, for every row of a batch."""


class Sums:
    """What a pass over the data adds up, layer by layer."""

    def __init__(self, tape: Tape):
        self.tape = tape
        self.kronecker = {lay.name: _KroneckerSum(lay) for lay in tape.layers if not isinstance(lay, NormLayer)}
        norms = {lay.name: lay for lay in tape.layers if isinstance(lay, NormLayer)}
        self.channel = {n: _ChannelSum(tuple(w for w in (lay.weight, lay.bias) if w)) for n, lay in norms.items()}
        self.channel |= {n: _ChannelSum((n,)) for n in tape.others}

    def add(self, piece: Piece) -> None:
        """Add one batch."""
        z, records = self.tape.record(piece.x)
        draws = len(piece.cotangents)
        gs = [Tape.backward(z, records, u, retain=k + 1 < draws) for k, u in enumerate(piece.cotangents)]
        for i, record in enumerate(records):
            mine = [g[i] for g in gs]
            if isinstance(record.layer, NormLayer):
                for g in mine:
                    self.channel[record.layer.name].add(record.layer.per_sample(record.a, g), piece.weights)
            else:
                self.kronecker[record.layer.name].add(record, mine, piece.weights, piece.traced)
        for names in in_groups(self.tape.other_sizes(), AT_A_TIME):
            for u in piece.cotangents:
                for n, g in self.tape.others_per_sample(piece.x, u, names).items():
                    self.channel[n].add({n: g}, piece.weights)


@dataclass
class KFAC:
    """The factored curvature c·B of a body; `solve` applies (c·B + M)⁻¹ to a flat vector.

    ``share`` is c: 1, or what part of the samples that B was made from stands for.
    """

    layout: Layout
    kronecker: dict[str, Kronecker]
    channels: dict[str, Channelwise]
    layers: dict[str, Layer]
    channel_names: dict[str, tuple[str, ...]]
    share: float = 1.0

    def scaled(self, share: float) -> KFAC:
        """The curvature of a share of the samples, from that of all."""
        return replace(self, share=self.share * share)

    def solve(self, v: Tensor, ridge: Ridge) -> Tensor:
        """(c·B + M)⁻¹ v for a flat v (D,); a layer's weights have one strength."""
        out = self._by_blocks(v, ridge, lambda block, part, mu: block.solve(part, mu / self.share))
        return out if self.share == 1 else out / self.share

    def inverse_root(self, v: Tensor, ridge: Ridge) -> Tensor:
        """(c·B + M)^(−1/2) v for a flat v (D,)."""
        out = self._by_blocks(v, ridge, lambda block, part, mu: block.inverse_root(part, mu / self.share))
        return out if self.share == 1 else out / self.share**0.5

    def _by_blocks(
        self, v: Tensor, ridge: Ridge, act: Callable[[Kronecker | Channelwise, Tensor, float], Tensor]
    ) -> Tensor:
        parts, out = self.layout.views(v), torch.empty_like(v)
        into = self.layout.views(out)
        for name, block in self.kronecker.items():
            layer = self.layers[name]
            mu = ridge.of(layer.weight or layer.bias or "")
            scatter_kronecker(layer, into, act(block, gather_kronecker(layer, parts, block), mu))
        for name, channel in self.channels.items():
            names = self.channel_names[name]
            solved = act(channel, torch.stack([parts[n].reshape(-1) for n in names], -1), ridge.of(names[0]))
            for k, n in enumerate(names):
                into[n].copy_(solved[:, k].view_as(into[n]))
        return out


def gather_kronecker(layer: Layer, parts: dict[str, Tensor], block: Kronecker) -> Tensor:
    """The layer's weights as (groups, o, p), the bias as last column."""
    groups = len(block.u_a)
    columns = []
    if layer.weight:
        columns.append(parts[layer.weight].reshape(groups, -1, block.u_a.shape[1] - (1 if layer.bias else 0)))
    if layer.bias:
        columns.append(parts[layer.bias].reshape(groups, -1, 1))
    return torch.cat(columns, -1)


def scatter_kronecker(layer: Layer, into: dict[str, Tensor], value: Tensor) -> None:
    """The inverse of `gather_kronecker`, written into the views."""
    if layer.bias:
        into[layer.bias].copy_(value[..., -1].reshape(into[layer.bias].shape))
        value = value[..., :-1]
    if layer.weight:
        into[layer.weight].copy_(value.reshape(into[layer.weight].shape))


def kfac(
    tape: Tape,
    pieces: Iterable[Piece],
    *,
    all_weight: float | None = None,
    warn: bool = True,
    world: World = ALONE,
) -> KFAC:
    """Factor the curvature of ``tape.body`` over all pieces of the data.

    Args:
        tape: the body's layers.
        pieces: batches with their output draws, at least one.
        all_weight: total sample weight of the whole data, where the pieces are only a part that stands for it.
        warn: name the weights that only get a diagonal.
        world: the processes that share the data, each with its own pieces.
    """
    if warn and tape.others:
        warnings.warn(
            f"K-FAC has no rule for {len(tape.others)} weights and uses their diagonal: {', '.join(tape.others)}",
            stacklevel=2,
        )
    sums = Sums(tape)
    total_weight = 0.0
    for piece in pieces:
        sums.add(piece)
        total_weight += float(piece.weights.sum())
    for s in sums.channel.values():
        if isinstance(s.blocks, Tensor):
            world.all_reduce_(s.blocks)
    seen = sum(world.all_gather(total_weight))
    times = 1.0 if all_weight is None else all_weight / seen
    return KFAC(
        tape.body.layout,
        _factored(sums.kronecker, seen, times, world, piece.x.device),
        {n: Channelwise.of(times * s.blocks) for n, s in sums.channel.items() if isinstance(s.blocks, Tensor)},
        {lay.name: lay for lay in tape.layers},
        {n: s.names for n, s in sums.channel.items()},
    )


def _factored(
    sums: dict[str, _KroneckerSum], total_weight: float, times: float, world: World, device: torch.device
) -> dict[str, Kronecker]:
    """Each layer's eigenpairs, computed by one process."""
    for s in sums.values():
        s.combine(world)
    costs = [s.cost for s in sums.values()]
    tasks = [
        partial(s.eigenpairs, owner == world.rank) for s, owner in zip(sums.values(), world.deal(costs), strict=True)
    ]
    pairs = run_parallel(tasks, costs, device)
    for four in pairs:
        for tensor in four:
            world.all_reduce_(tensor)
    return {n: s.block(four, total_weight, times) for (n, s), four in zip(sums.items(), pairs, strict=True)}
