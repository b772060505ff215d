"""Pillow's resize of uint8 images by tensors, bit for bit, on any device and for many windows at once.

Along one side, a window of L pixels becomes s. With r = L/s, t = max(r, 1), a filter f of support a (bilinear: 1,
bicubic: 2) and the centre c_i = (i + ½) r of output i, the weight of input j is

    w_ij = f((j − c_i + ½) / t) / Σ_j' f((j' − c_i + ½) / t),    ⌊c_i − a t + ½⌋ ≤ j, j' < ⌊c_i + a t + ½⌋,

inside the window, rounded to k_ij = round(2²² w_ij), half away from zero. One side after the other is resized by

    y_i = clip(⌊(Σ_j k_ij x_j + 2²¹) / 2²²⌋, 0, 255).

The sums are whole numbers below 2⁵³, so matrix products in float64 are exact in any order. The weights are computed in
float64 in Pillow's order of operations. Where L = s, they are those of the identity: the pass that Pillow skips then
changes nothing. The width comes first; since Pillow 13 the height does where it shrinks by more than twice as many
pixels as the width (`height_first`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import PIL
import torch
from torch import Tensor

from lqf.data.crops import Windows
from lqf.data.preprocess import Interpolation

ONE = 2**22
"""Weight one in fixed point."""
_BYTES = 2**28
"""What the tensors of the crops that are resampled together may take."""
_PILLOW = int(PIL.__version__.split(".")[0])


def resample(whole: Tensor, windows: Windows, s: int, interpolation: Interpolation) -> Tensor:
    """Windows of images (B, 3, R, R), resized to s × s as Pillow does: uint8 (B, 3, s, s), on their device.

    Args:
        whole: the images, uint8.
        windows: one for every image, on the same device.
        s: side of the result.
        interpolation: the filter.
    """
    side = whole.shape[-1]
    at_once = max(1, _BYTES // (8 * (3 * side * side + 7 * side * s + 3 * s * s)))
    out = whole.new_empty(len(whole), 3, s, s)
    for first in range(0, len(whole), at_once):
        part = slice(first, first + at_once)
        out[part] = resample_together(whole[part], windows[part], s, interpolation)
    return out


def resample_together(whole: Tensor, windows: Windows, s: int, interpolation: Interpolation) -> Tensor:
    """`resample` of a few images: K_down x K_acrossᵀ for every channel, rounded after each product.

    Where the height comes first, the image is transposed and resized like the others, and transposed again.
    """
    side, steps = whole.shape[-1], torch.arange(s, device=whole.device).expand(whole.shape[0], s)
    top, left, h, w = windows.boxes.unbind(1)
    mirrored = torch.where(windows.mirrored[:, None], s - 1 - steps, steps)
    across = weights(left, w, mirrored, s, side, interpolation)  # (B, s, R)
    down = weights(top, h, steps, s, side, interpolation)
    turned = height_first(h, w, s)[:, None, None]
    first, second = torch.where(turned, down, across), torch.where(turned, across, down)
    x = torch.where(turned[..., None], whole.mT, whole).transpose(1, 2)  # (B, R, 3, R)
    x = x.to(torch.float64, memory_format=torch.contiguous_format).flatten(1, 2)
    x = to_pixels(x @ first.mT)  # (B, R · 3, s)
    x = to_pixels(second @ x.view(x.shape[0], side, 3 * s))  # (B, s, 3 · s)
    y = x.view(-1, s, 3, s).transpose(1, 2).to(torch.uint8)
    return torch.where(turned[..., None], y.mT, y)


def height_first(h: Any, w: Any, s: int) -> Any:
    """Where Pillow resizes the height before the width: of sides (B,), or of one picture in numbers."""
    return (h > s) & (h - s > 2 * (w - s)) & (_PILLOW >= 13)


def weights(start: Tensor, length: Tensor, steps: Tensor, s: int, side: int, interpolation: Interpolation) -> Tensor:
    """k of windows along one side of images: whole numbers in float64, (B, s, R).

    Args:
        start: (B,) where the windows begin.
        length: (B,) L.
        steps: (B, s) the outputs i in the order in which they are wanted.
        s: number of outputs.
        side: R.
        interpolation: f.
    """
    support, filter = FILTERS[interpolation]
    scale = length[:, None].double() / s
    stretch = scale.clamp(min=1)
    centre, reach = (steps + 0.5) * scale, support * stretch  # (B, s), (B, 1)
    first = (centre - reach + 0.5).trunc().clamp(min=0)
    end = torch.minimum((centre + reach + 0.5).trunc(), length[:, None])
    taps = torch.arange(2 * math.ceil(support * max(side / s, 1)) + 1, device=start.device)
    at = first[..., None] + taps  # (B, s, T)
    k = filter((at - centre[..., None] + 0.5) * (1 / stretch[..., None])) * (at < end[..., None])
    k = to_whole(k / sum(k.unbind(-1))[..., None])  # type: ignore[index]  # summed one by one, as Pillow does
    placed = k.new_zeros(*steps.shape, side + len(taps))  # taps beyond the image have weight 0
    return placed.scatter_(-1, at.long() + start[:, None, None], k)[..., :side]


def to_whole(w: Tensor) -> Tensor:
    """2²² w, rounded half away from zero."""
    return (w * ONE + torch.where(w < 0, -0.5, 0.5)).trunc_()


def to_pixels(x: Tensor) -> Tensor:
    """Sums in fixed point to values of pixels, in place."""
    return x.add_(ONE // 2).div_(ONE).floor_().clamp_(0, 255)


def _bilinear(x: Tensor) -> Tensor:
    """1 − |x| up to 1."""
    return (1 - x.abs()).clamp(min=0)


def _bicubic(x: Tensor) -> Tensor:
    """Keys's cubic with a = −½: (1.5 |x| − 2.5) x² + 1 up to 1, −½ (((|x| − 5) |x| + 8) |x| − 4) up to 2."""
    x = x.abs()
    near, far = (1.5 * x - 2.5) * x * x + 1, (((x - 5) * x + 8) * x - 4) * -0.5
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


FILTERS: dict[Interpolation, tuple[float, Callable[[Tensor], Tensor]]] = {
    "bilinear": (1.0, _bilinear),
    "bicubic": (2.0, _bicubic),
}
"""Support and f of every filter."""
