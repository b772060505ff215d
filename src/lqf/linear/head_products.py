"""Products with z̃ = (z, 1) in float64 for wide features, by pieces of columns: never a float64 copy of all of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

COLUMNS = 4096
"""Features that are held in float64 at a time."""


def gram(z: Tensor) -> Tensor:
    """z̃z̃ᵀ (n, n)."""
    out = torch.ones(len(z), len(z), dtype=torch.float64, device=z.device)
    for _, part in pieces(z):
        out += part @ part.T
    return out


def vjp(a: Tensor, z: Tensor) -> Tensor:
    """aᵀz̃ (C, p+1) for a (n, C)."""
    a = a.to(device=z.device, dtype=torch.float64)
    out = a.new_empty(a.shape[1], z.shape[1] + 1)
    out[:, -1] = a.sum(0)
    for columns, part in pieces(z):
        out[:, columns] = a.T @ part
    return out


def jvp(z: Tensor, v: Tensor) -> Tensor:
    """z̃vᵀ (n, C) for v (C, p+1)."""
    v = v.to(device=z.device, dtype=torch.float64)
    out = v[:, -1].expand(len(z), -1).clone()
    for columns, part in pieces(z):
        out += part @ v[:, columns].T
    return out


def pieces(z: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Columns of z, and what they hold, in float64."""
    for at in range(0, z.shape[1], COLUMNS):
        columns = slice(at, min(at + COLUMNS, z.shape[1]))
        yield columns, z[:, columns].double()
