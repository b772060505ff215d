"""Random ±1 draws that belong to a row: the same in whatever batch, and on whatever process, the row is."""

from __future__ import annotations

import torch
from torch import Tensor


def random_signs(rows: Tensor, draws: int, outputs: int, seed: int = 0) -> Tensor:
    """u (draws, B, outputs) of ±1 for the row numbers ``rows`` (B,), each entry a hash of (seed, row, draw, output)."""
    draw = torch.arange(draws, device=rows.device)[:, None, None]
    output = torch.arange(outputs, device=rows.device)
    x = rows[None, :, None] * (draws * outputs) + draw * outputs + output
    return 1 - 2 * (_mixed(x + _mixed(torch.tensor(seed, device=rows.device))) & 1)


def _mixed(x: Tensor) -> Tensor:
    """The finaliser of splitmix64: every bit of the result depends on every bit of x (int64; products wrap)."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """x >> bits with zeros moving in, as for an unsigned number."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x
