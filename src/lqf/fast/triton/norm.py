"""Triton kernels of `norm` and `layer_norm`: each derivative in one pass over the activations.

For activations with channels last, (M, C) in memory. Arithmetic is in float32 whatever the activations' type; sums over
M are made by many programs, each of which leaves one row of partial sums.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from lqf.fast.triton.works import triton_works

TYPES = (torch.float16, torch.bfloat16, torch.float32)
KINDS = {"none": 0, "leaky": 1, "leaky6": 2, "silu": 3}
PROGRAMS = 1056
"""Of a sum over M, for all channels together."""
TILES = ((64, 64), (16, 128))
"""Rows and channels that a program takes at a time, the second from 128 channels on: the best of a dozen on an H200."""
VJP_TILES = ((128, 64), (32, 64))
"""The same for gradients, without and with a shortcut."""
ROW_TILE = 2048
"""Numbers that a program holds of each tensor where rows are normalised one by one."""
WIDEST = 8192
"""Channels of a row that one program holds."""


Norm = tuple[Tensor, Tensor, Tensor, Tensor, float]


def kernels_for(x: Tensor) -> Kernels | None:
    """The kernels, where they can be used for these activations."""
    if not x.is_cuda or x.dtype not in TYPES or not triton_works(x.device):
        return None
    last = x.ndim == 2 and x.is_contiguous()
    return _kernels() if last or (x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)) else None


def kernels_for_rows(x: Tensor) -> Kernels | None:
    """The same for rows (M, C) that are normalised one by one."""
    return kernels_for(x) if x.shape[1] <= WIDEST else None


class Kernels:
    """Launches them; ``norm`` is γ, β, mean, var and ε throughout."""

    def __init__(self, jit: dict[str, Any]):
        self.jit = jit

    def value(self, x: Tensor, skip: Tensor | None, norm: Norm, act: Any) -> Tensor:
        """y."""
        y = torch.empty_like(x)
        grid, sizes = _tiles(x)
        given = (skip is not None, KINDS[act.kind], *_tile(x))
        self.jit["value"][grid](x, *_optional(x, skip), y, *norm, *sizes, act.slope, *given)
        return y

    def tangent(
        self,
        x: Tensor,
        skip: Tensor | None,
        norm: Norm,
        act: Any,
        dx: Tensor | None,
        dskip: Tensor | None,
        dweight: Tensor | None,
        dbias: Tensor | None,
    ) -> Tensor:
        """dy."""
        dy = torch.empty_like(x)
        grid, sizes = _tiles(x)
        *fixed, eps = norm
        given = tuple(t is not None for t in (dx, skip, dskip, dweight, dbias))
        channels = [fixed[0] if t is None else t.to(fixed[0].dtype) for t in (dweight, dbias)]
        self.jit["tangent"][grid](
            *(x, *_optional(x, dx, skip, dskip), dy, *fixed, *channels),
            *(eps, *sizes, act.slope, *given, KINDS[act.kind], *_tile(x)),
        )
        return dy

    def vjp(
        self, x: Tensor, skip: Tensor | None, norm: Norm, act: Any, g: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Gradients at x, s, γ and β."""
        dx, dskip = torch.empty_like(x), None if skip is None else torch.empty_like(x)
        _, (m, channels) = _tiles(x)
        rows, width = VJP_TILES[skip is not None]
        across = -(-channels // width)
        down = max(1, min(-(-m // rows), PROGRAMS // across))
        partial = torch.empty(down, 2, channels, dtype=torch.float32, device=x.device)
        *fixed, eps = norm
        self.jit["vjp"][(down, across)](
            *(x, *_optional(x, skip), like(g, x), dx, *_optional(x, dskip), *fixed, partial),
            *(eps, m, channels, act.slope, skip is not None, KINDS[act.kind], rows, width),
        )
        dweight, dbias = partial.sum(0)
        return dx, dskip, dweight, dbias

    def row_tangent(
        self,
        x: Tensor,
        dx: Tensor | None,
        weight: Tensor | None,
        dweight: Tensor | None,
        dbias: Tensor | None,
        eps: float,
    ) -> Tensor:
        """dy of a layer normalisation of every row."""
        dy = torch.empty_like(x)
        m, c = x.shape
        given = tuple(t is not None for t in (dx, weight, dweight, dbias))
        others = [x if t is None else t.contiguous() for t in (weight, dweight, dbias)]
        width = 1 << (c - 1).bit_length()
        rows = max(1, ROW_TILE // width)
        self.jit["row_tangent"][(-(-m // rows),)](*(x, *_optional(x, dx), *others, dy, eps, m, c), *given, rows, width)
        return dy


def _optional(x: Tensor, *tensors: Tensor | None) -> list[Tensor]:
    """In the layout of x; a tensor that is not there is not read, and any address will do."""
    return [x if t is None else like(t, x) for t in tensors]


def _tile(x: Tensor) -> tuple[int, int]:
    """Rows and channels that one program takes at a time."""
    return TILES[x.shape[1] >= 128]


def _tiles(x: Tensor) -> tuple[tuple[int, int], tuple[int, int]]:
    """The grid of tiles, and (M, C)."""
    c = x.shape[1]
    m = x.numel() // max(c, 1)
    rows, width = _tile(x)
    return (-(-m // rows), -(-c // width)), (m, c)


def like(t: Tensor, x: Tensor) -> Tensor:
    """In the type and layout of x."""
    return t.to(x.dtype).contiguous(memory_format=torch.channels_last) if x.ndim == 4 else t.to(x.dtype).contiguous()


@cache
def _kernels() -> Kernels:
    from lqf.fast.triton import norm_kernels

    names = ("value", "tangent", "vjp", "row_tangent")
    return Kernels({name: getattr(norm_kernels, name) for name in names})
