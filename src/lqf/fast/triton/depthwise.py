"""Triton kernels of `depthwise`: each derivative in one pass over the activations.

For activations with channels last, (B, H, W, C) in memory. Arithmetic is in float32 whatever the activations' type.
Neighbouring channels belong to neighbouring threads; a program takes some positions of the image, and what its taps
have in common comes from the cache. The weights are handed over as (K·K, C), float32.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from lqf.fast.triton.norm import TYPES, like
from lqf.fast.triton.works import triton_works

LARGEST = 7
"""Taps in a row, each of which has a running sum of its own in the gradient at the weights."""
NARROW, WIDE = 32, 64
"""Channels of a program: the second where it leaves no more threads idle."""
DOWN = {2: 1, 4: 2}
"""Rows of y that a program has one below the other, by the bytes of a number: two share K − 1 of K + 1 rows of x."""
TILE = {2: 2048, 4: 4096}
"""Numbers of y, or of a gradient at the input, that a program has in all."""
WEIGHT_TILE = 1024
"""The same at a time for gradients at the weights, which hold K times as many sums."""
WEIGHT_PROGRAMS = 4224
"""Of a gradient at the weights, for all channels and kernel rows together."""
STRIP, NO_STRIPS = 8, 16
"""Columns of the strips in which an image is gone through, and the widest image that is one strip."""

Window = tuple[int, int]
"""Stride and padding, of both dimensions."""


def kernels_for(x: Tensor, weight: Tensor) -> Kernels | None:
    """The kernels, where they can be used for these activations and weights (C, 1, K, K)."""
    if not x.is_cuda or x.dtype not in TYPES or not triton_works(x.device):
        return None
    k, last = weight.shape[2:], x.is_contiguous(memory_format=torch.channels_last)
    return _kernels() if last and x.numel() and k[0] == k[1] and 2 <= k[0] <= LARGEST else None


class Kernels:
    """Launches them."""

    def __init__(self, jit: dict[str, Any]):
        self.jit = jit

    def value(self, x: Tensor, weight: Tensor, bias: Tensor | None, window: Window) -> Tensor:
        """y = W * x + b."""
        return self._correlate((x, _taps(weight)), None, bias, window, _out(x, weight, window))

    def tangent(
        self,
        x: Tensor,
        weight: Tensor,
        window: Window,
        dx: Tensor | None,
        dweight: Tensor | None,
        dbias: Tensor | None,
    ) -> Tensor:
        """dy = W * dx + dW * x + db; whatever is absent is not read."""
        first = None if dx is None else (like(dx, x), _taps(weight))
        second = None if dweight is None else (x, _taps(dweight))
        return self._correlate(first, second, dbias, window, _out(x, weight, window))

    def pull_input(self, x: Tensor, weight: Tensor, window: Window, g: Tensor) -> Tensor:
        """The gradient at x, which has its shape; of stride 1 the correlation with the flipped weights."""
        dx, g, (stride, pad) = torch.empty_like(x), like(g, x), window
        k = weight.shape[-1]
        if stride == 1:
            return self._correlate((g, _taps(weight.flip(2, 3))), None, None, (1, k - 1 - pad), dx)
        c = x.shape[1]
        _, *own = tile(c, x.dtype, 1)
        grid, strip = _tiles(dx, 1)
        self._launch("pull_input", grid, g, _taps(weight), dx, *_sizes(x, g), strip, pad, c, k, stride, *own)
        return dx

    def pull_weight(
        self, x: Tensor, weight: Tensor, window: Window, g: Tensor, *, bias: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The gradients at W and, if asked for, at b: rows of partial sums, added up in a fixed order."""
        g, (stride, pad), (c, _, k, _) = like(g, x), window, weight.shape
        rows, width = weight_tile(c)
        across, m = -(-c // width), g.numel() // c
        programs = max(1, min(-(-m // rows), WEIGHT_PROGRAMS // (across * k)))
        chunk = -(-m // (programs * rows)) * rows
        programs = -(-m // chunk)
        partial = torch.empty(programs, k * k + bias, c, dtype=torch.float32, device=x.device)
        sizes = (*_sizes(x, g), pad, chunk, c)
        self._launch("pull_weight", (k, across, programs), x, g, partial, *sizes, bias, k, stride, rows, width)
        sums = partial.sum(0)
        dweight = torch.empty(weight.shape, dtype=weight.dtype, device=x.device)
        dweight.flatten(1).copy_(sums[: k * k].t())
        return dweight, sums[-1].to(weight.dtype) if bias else None

    def _launch(self, name: str, grid: tuple[int, ...], *args: Any) -> None:
        self.jit[name][grid](*args)

    def _correlate(
        self,
        first: tuple[Tensor, Tensor] | None,
        second: tuple[Tensor, Tensor] | None,
        bias: Tensor | None,
        window: Window,
        y: Tensor,
    ) -> Tensor:
        """The sum of two correlations and a bias, any of which may be absent, into ``y``."""
        some = first or second
        if some is None:
            return y.copy_(y.new_zeros(()) if bias is None else bias.view(1, -1, 1, 1).expand_as(y))
        x, taps = some
        (stride, pad), c, own = window, x.shape[1], tile(x.shape[1], x.dtype)
        grid, strip = _tiles(y, own[0])
        sizes = (*_sizes(x, y), strip, pad, c)
        given = (first is not None, second is not None, bias is not None)
        added = taps if bias is None else bias.to(torch.float32).contiguous()
        k = round(len(taps) ** 0.5)
        self._launch("correlate", grid, *(first or some), *(second or some), added, y, *sizes, *given, k, stride, *own)
        return y


def tile(channels: int, dtype: torch.dtype, down: int | None = None) -> tuple[int, int, int]:
    """What one program takes: so many rows, one below the other, at so many positions, of so many channels."""
    down, width = down or DOWN[dtype.itemsize], _width(channels)
    return down, TILE[dtype.itemsize] // (width * down), width


def weight_tile(channels: int) -> tuple[int, int]:
    """The same at a time in a gradient at the weights."""
    return WEIGHT_TILE // _width(channels), _width(channels)


def out_size(size: int, k: int, window: Window) -> int:
    """Rows (columns) of y."""
    stride, pad = window
    return (size + 2 * pad - k) // stride + 1


def _out(x: Tensor, weight: Tensor, window: Window) -> Tensor:
    b, c, h, w = x.shape
    shape = (b, c, *(out_size(s, weight.shape[-1], window) for s in (h, w)))
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


def _taps(weight: Tensor) -> Tensor:
    """(C, 1, K, K) -> (K·K, C), float32, by one copy."""
    rows = weight.flatten(1).t()
    return torch.empty(rows.shape, dtype=torch.float32, device=weight.device).copy_(rows)


def _sizes(x: Tensor, y: Tensor) -> tuple[int, ...]:
    """Images, then rows and columns of both sides."""
    return (len(x), *x.shape[2:], *y.shape[2:])


def _width(channels: int) -> int:
    """Channels that one program takes."""
    return WIDE if -(-channels // WIDE) * WIDE <= -(-channels // NARROW) * NARROW else NARROW


def _strip(columns: int) -> int:
    """Columns of a strip: an even share of a wide image, so that a program's positions form a patch."""
    return columns if columns <= NO_STRIPS else -(-columns // -(-columns // STRIP))


def _tiles(y: Tensor, down: int) -> tuple[tuple[int, int], int]:
    """The grid, and the width of a strip."""
    b, c, h, w = y.shape
    (_, rows, width), strip = tile(c, y.dtype, down), _strip(w)
    positions = b * -(-h // down) * strip * -(-w // strip)
    return (-(-positions // rows), -(-c // width)), strip


@cache
def _kernels() -> Kernels:
    from lqf.fast.triton import depthwise_kernels

    return Kernels({name: getattr(depthwise_kernels, name) for name in ("correlate", "pull_input", "pull_weight")})
