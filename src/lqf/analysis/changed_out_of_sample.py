"""Leave-one-out of a model that would be fitted on changed data, without fitting it.

In rows scaled by √s (see `lqf.analysis.dual`), with H the hat matrix, C = I − H, T the changed rows, whose weights
become s(1 + ρ) and whose targets move by Δ:

    M = 1 + H_TT ρ,      e'_T = M⁻¹ (e + CΔ)_T,      e' = e + CΔ − H_:T ρ e'_T,

the residuals of the changed problem. Leaving a unit S out of that one, with D = 1 + ρ on T and 1 elsewhere, gives

    e'_S^loo = [(1 − D_S) + (C_SS + H_ST ρ M⁻¹ H_TS) D_S]⁻¹ e'_S.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lqf.analysis.dual import Dual
from lqf.analysis.units import Units
from lqf.kernels.ridge import KernelRidge, by_size

Blocks = list[tuple[Tensor, Tensor]]
"""Rows (g, m) of units of one size, and C_SS (g, m, m) of each."""


def unit_blocks(dual: Dual, units: Units) -> Blocks:
    """Of all units; they are the same for every change."""
    groups = units.member.repeat_interleave(dual.pairs).to(dual.ridge.q.device)
    rows = by_size(groups, dual.ridge.q.shape[1])
    return [(some, dual.ridge.left_out_block(some, dual.mu)) for some in rows]


def changed_out_of_sample(dual: Dual, blocks: Blocks, samples: Tensor, rho: Tensor, shift: Tensor) -> Tensor:
    """(n, C) residuals of all rows against their changed targets, each unit left out in turn.

    Args:
        dual: the problem as it was fitted.
        blocks: of those who leave together (`unit_blocks`).
        samples: (k,) numbers of those that change.
        rho: (k,) their weights become s(1 + ρ).
        shift: (k, C) of their targets.
    """
    ridge, mu = dual.ridge, dual.mu
    rows = (samples[:, None] * dual.pairs + torch.arange(dual.pairs)).flatten().to(ridge.q.device)
    root = ridge.weights.sqrt()[:, None]
    rho = rho.to(ridge.q).repeat_interleave(dual.pairs)
    hat = (ridge.q * (ridge.lam / (ridge.lam + mu))) @ ridge.q[rows].T  # (n, k) H_:T
    block = ridge.left_out_block(rows[None], mu)[0]
    inverse = torch.linalg.inv(torch.diag(1 + rho) - block * rho)
    e = root * dual.e
    if bool(shift.any()):
        moved = shift.repeat_interleave(dual.n_views, 0).to(ridge.q)
        e = e + _left_out_columns(ridge, rows, mu) @ (root[rows] * (moved if dual.shared else moved.reshape(-1, 1)))
    e = e - hat @ (rho[:, None] * (inverse @ e[rows]))
    counts = torch.ones_like(e[:, 0])
    counts[rows] += rho
    out = torch.empty_like(e)
    for some, alone in blocks:
        near, d = hat[some], counts[some]
        left = alone + near @ (rho[:, None] * inverse) @ near.mT
        out[some] = torch.linalg.solve(torch.diag_embed(1 - d) + left * d[:, None, :], e[some])
    return (out / root).reshape(dual.residual.shape)


def _left_out_columns(ridge: KernelRidge, rows: Tensor, mu: float) -> Tensor:
    """(n, k) columns of C, without cancellation."""
    q = ridge.q[rows]
    columns = (ridge.q * (mu / (ridge.lam + mu))) @ q.T
    if ridge.q.shape[0] == ridge.q.shape[1]:
        return columns
    columns = columns - ridge.q @ q.T
    columns[rows, torch.arange(len(rows), device=rows.device)] += 1
    return columns
