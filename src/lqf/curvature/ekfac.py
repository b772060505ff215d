"""Eigenvalues of the Kronecker blocks corrected by measured second moments (EK-FAC).

K-FAC assumes that inputs and output gradients are independent and that positions do not correlate. In the basis it
finds, the best diagonal is known: D_jk = Σ_i s_i (U_Gᵀ ∇_i U_A)²_jk over the per-sample gradients ∇_i. It is measured
on some of the samples, and blended with K-FAC's own eigenvalues as if those were `PRIOR` further samples, so that a
direction that no sample happened to show is not taken for flat.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from lqf.curvature.blocks import Kronecker
from lqf.curvature.kfac import KFAC, Piece
from lqf.linear.layers import NormLayer, Record, Tape
from lqf.runtime.distributed import ALONE, World

PRIOR = 16


def ekfac(body: KFAC, tape: Tape, pieces: Iterable[Piece], total_weight: float, world: World = ALONE) -> KFAC:
    """The same blocks with eigenvalues measured on the pieces of all processes, scaled up to the total weight."""
    sums = {name: torch.zeros_like(block.d) for name, block in body.kronecker.items()}
    seen_weight, seen = 0.0, 0
    for piece in pieces:
        _add(sums, body, tape, piece)
        seen_weight += float(piece.weights.sum())
        seen += len(piece.x)
    for total in sums.values():
        world.all_reduce_(total)
    seen_weight, seen = (sum(each) for each in zip(*world.all_gather((seen_weight, seen)), strict=True))
    if not seen:
        return body
    share = seen / (seen + PRIOR)
    blended = {
        name: replace(block, d=share * (total_weight / seen_weight) * sums[name] + (1 - share) * block.d)
        for name, block in body.kronecker.items()
    }
    return replace(body, kronecker=blended)


def _add(sums: dict[str, Tensor], body: KFAC, tape: Tape, piece: Piece) -> None:
    z, records = tape.record(piece.x)
    records = [r for r in records if not isinstance(r.layer, NormLayer)]
    draws = len(piece.cotangents)
    for k, u in enumerate(piece.cotangents):
        gs = Tape.backward(z, records, u, retain=k + 1 < draws)
        for record, g in zip(records, gs, strict=True):
            block = body.kronecker[record.layer.name]
            moments = _projected(record, g, block).square()  # (B, groups, r_g, r_a)
            sums[record.layer.name] += torch.einsum("b,bgij->gij", piece.weights, moments)


def _projected(record: Record, g: Tensor, block: Kronecker) -> Tensor:
    """U_Gᵀ ∇_i U_A of every sample; projecting a and g first is cheaper than projecting their product."""
    a = record.layer.patches(record.a)
    if record.layer.bias:
        a = torch.cat([a, torch.ones_like(a[:, :, :1])], 2)
    if not record.layer.weight:
        a = a[:, :, -1:]
    g = record.layer.grads(g)
    if g.shape[-1] * (a.shape[2] + g.shape[2]) < 2 * a.shape[2] * g.shape[2]:
        g = g if block.u_g is None else block.u_g.mT @ g
        return g @ (block.u_a.mT @ a).mT
    return block.to_basis(g @ a.mT)
