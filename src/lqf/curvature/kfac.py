"""Kronecker-factored curvature (K-FAC) of Σ s_i J_iᵀJ_i, computed once, inverted for any ridge strength.

For a layer with inputs a and output gradients g (see `layers`), L positions and total sample weight N,

    Σ_i s_i J_iᵀJ_i  ≈  c · (Σ s g gᵀ) ⊗ (Σ s a aᵀ) / (N·L),

with the output gradients either exact over the C outputs or drawn with random ±1 combinations u, E[uuᵀ] = I. The
factor c makes the trace exact (measured on some samples): under average pooling the gradients at neighbouring
positions are nearly equal, and the uncorrected product is then too small by up to L. Normalisation layers get their
exact 2 × 2 block per channel; weights of any other kind their exact diagonal, named in a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lqf.curvature.blocks import Channelwise, Gram, Kronecker
from lqf.layers import Layer, NormLayer, Record, Tape
from lqf.linearize import Layout


@dataclass(frozen=True)
class Piece:
    """One batch: inputs, sample weights (B,), and cotangents u (R, B, O) with E[Σ_r u_r u_rᵀ] = WᵀW."""

    x: Tensor
    weights: Tensor
    cotangents: Tensor


@dataclass
class _KroneckerSum:
    layer: Layer
    a: Gram = field(default_factory=Gram)
    g: Gram = field(default_factory=Gram)
    positions: int = 1
    exact_trace: float = 0.0
    factored_trace: float = 0.0

    def add(self, record: Record, gs: list[Tensor], weights: Tensor, measure_trace: bool) -> None:
        root = weights.sqrt()[:, None, None, None]
        a = self.layer.patches(record.a)
        self.positions = a.shape[-1]
        if self.layer.bias:
            a = torch.cat([a, torch.ones_like(a[:, :, :1])], 2)
        if not self.layer.weight:
            a = a[:, :, -1:]
        g = torch.stack([self.layer.grads(gi) for gi in gs])  # (R, B, groups, o, L)
        if measure_trace:
            self._measure(a, g, weights)
        self.a.add(_columns(root * a))
        self.g.add(_columns((root * g).flatten(0, 1)))

    def _measure(self, a: Tensor, g: Tensor, weights: Tensor) -> None:
        w = weights[:, None]
        exact = (g @ a.mT).square().sum((-1, -2)).sum(0)  # (B, groups)
        norm_a, norm_g = a.square().sum((-1, -2)), g.square().sum((-1, -2)).sum(0)
        self.exact_trace += float((w * exact).sum())
        per_group = (w * norm_a).sum(0) * (w * norm_g).sum(0)
        self.factored_trace += float(per_group.sum() / (weights.sum() * self.positions))

    def block(self, total_weight: float) -> Kronecker:
        correction = self.exact_trace / self.factored_trace if self.factored_trace > 0 else 1.0
        (lam_a, u_a), (lam_g, u_g) = self.a.eigenpairs(), self.g.eigenpairs()
        scale = correction / (total_weight * self.positions)
        return Kronecker(u_a, u_g, scale * lam_g[..., :, None] * lam_a[..., None, :])


def _columns(x: Tensor) -> Tensor:
    """(B, groups, p, L) -> (groups, p, B·L)."""
    return x.permute(1, 2, 0, 3).flatten(2)


@dataclass
class _ChannelSum:
    names: tuple[str, ...]
    blocks: Tensor | float = 0.0

    def add(self, grads: dict[str, Tensor], weights: Tensor) -> None:
        rows = torch.stack([grads[n] for n in self.names], -1)  # (B, channels, k)
        self.blocks = self.blocks + torch.einsum("b,bci,bcj->cij", weights, rows, rows)


class Sums:
    """What a pass over the data adds up, layer by layer."""

    def __init__(self, tape: Tape):
        self.tape = tape
        self.kronecker = {lay.name: _KroneckerSum(lay) for lay in tape.layers if not isinstance(lay, NormLayer)}
        norms = {lay.name: lay for lay in tape.layers if isinstance(lay, NormLayer)}
        self.channel = {n: _ChannelSum(tuple(w for w in (lay.weight, lay.bias) if w)) for n, lay in norms.items()}
        self.channel |= {n: _ChannelSum((n,)) for n in tape.others}

    def add(self, piece: Piece, measure_trace: bool) -> None:
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
                self.kronecker[record.layer.name].add(record, mine, piece.weights, measure_trace)
        for u in piece.cotangents:
            for n, g in self.tape.others_per_sample(piece.x, u).items():
                self.channel[n].add({n: g}, piece.weights)


@dataclass
class KFAC:
    """The factored curvature of a body; `solve` applies (K-FAC + μI)⁻¹ to a flat vector."""

    layout: Layout
    kronecker: dict[str, Kronecker]
    channels: dict[str, Channelwise]
    layers: dict[str, Layer]
    channel_names: dict[str, tuple[str, ...]]

    def solve(self, v: Tensor, mu: float) -> Tensor:
        """(B + μI)⁻¹ v for a flat v (D,)."""
        parts, out = self.layout.views(v), torch.empty_like(v)
        into = self.layout.views(out)
        for name, block in self.kronecker.items():
            layer = self.layers[name]
            scatter_kronecker(layer, into, block.solve(gather_kronecker(layer, parts, block), mu))
        for name, channel in self.channels.items():
            names = self.channel_names[name]
            solved = channel.solve(torch.stack([parts[n].reshape(-1) for n in names], -1), mu)
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


def kfac(tape: Tape, pieces: Iterable[Piece], *, trace_samples: int = 128, warn: bool = True) -> KFAC:
    """Factor the curvature of ``tape.body`` over all pieces of the data.

    Args:
        tape: the body's layers.
        pieces: batches with their output draws.
        trace_samples: the trace correction is measured on about this many samples.
        warn: name the weights that only get a diagonal.
    """
    if warn and tape.others:
        warnings.warn(
            f"K-FAC has no rule for {len(tape.others)} weights and uses their diagonal: {', '.join(tape.others)}",
            stacklevel=2,
        )
    sums = Sums(tape)
    total_weight, seen = 0.0, 0
    for piece in pieces:
        sums.add(piece, measure_trace=seen < trace_samples)
        total_weight += float(piece.weights.sum())
        seen += len(piece.x)
    return KFAC(
        tape.body.layout,
        {n: s.block(total_weight) for n, s in sums.kronecker.items()},
        {n: Channelwise.of(s.blocks) for n, s in sums.channel.items() if isinstance(s.blocks, Tensor)},
        {lay.name: lay for lay in tape.layers},
        {n: s.names for n, s in sums.channel.items()},
    )
