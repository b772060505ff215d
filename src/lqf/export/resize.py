"""Pillow's resize inside a graph: pictures of any size, all of a batch alike, to the square that views are cut from.

The weights are those of `lqf.data.resample`, written for one size that is known when the graph runs and not before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lqf.data.preprocess import Preprocess
from lqf.data.resample import FILTERS, ONE, height_first, to_whole

FAR = 4
"""Times its short side is all that is seen of a very long picture."""


def square(pixels: Tensor, preprocess: Preprocess) -> Tensor:
    """`Preprocess.resized` of pictures (B, 3, H, W): whole numbers from 0 to 255 in float64, (B, 3, R, R)."""
    side = preprocess.stored
    down, across = (torch.arange(n, device=pixels.device).double() for n in pixels.shape[2:])
    h, w = down[-1] + 1, across[-1] + 1
    short = torch.minimum(h, w)
    if preprocess.keep_aspect:
        kept = [torch.minimum(length, FAR * short) for length in (h, w)]
        goals = [torch.clamp_min(torch.floor(side * length / torch.minimum(*kept)), side) for length in kept]
    else:
        kept, goals = [h, w], [torch.full_like(h, side)] * 2
    starts = [_middle(length, seen) for length, seen in zip((h, w), kept, strict=True)]
    steps = [_middle(goal, torch.full_like(goal, side)) + torch.arange(side, device=pixels.device) for goal in goals]
    k = [
        _weights(places - start, seen, goal, step, preprocess)
        for places, start, seen, goal, step in zip((down, across), starts, kept, goals, steps, strict=True)
    ]
    given = (pixels.double(), k[0].clone(), k[1].mT.contiguous())
    sizes: list[Any] = list(pixels.shape[2:])
    if all(isinstance(n, int) for n in sizes):  # and no symbols of a graph that is being written
        return (_height_first if _turned(sizes[0], sizes[1], preprocess) else _width_first)(*given)
    turned = height_first(kept[0] - goals[0] + side, kept[1] - goals[1] + side, side)
    out: Tensor = torch.cond(turned, _height_first, _width_first, given)
    return out


def _turned(h: int, w: int, preprocess: Preprocess) -> bool:
    """`height_first` of a size that is known while the graph is written."""
    side, kept = preprocess.stored, [min(n, FAR * min(h, w)) if preprocess.keep_aspect else n for n in (h, w)]
    goals = [max(side * n // min(kept), side) if preprocess.keep_aspect else side for n in kept]
    return bool(height_first(kept[0] - goals[0] + side, kept[1] - goals[1] + side, side))


def _height_first(x: Tensor, down: Tensor, across: Tensor) -> Tensor:
    return _pixels(_pixels(down @ x) @ across)


def _width_first(x: Tensor, down: Tensor, across: Tensor) -> Tensor:
    return _pixels(down @ _pixels(x @ across))


def _pixels(x: Tensor) -> Tensor:
    """`to_pixels`, in a branch of a graph, which must overwrite nothing."""
    return torch.clamp(torch.floor((x + ONE // 2) / ONE), 0, 255)


def _weights(places: Tensor, length: Tensor, goal: Tensor, steps: Tensor, preprocess: Preprocess) -> Tensor:
    """k (R, n): of the outputs ``steps`` of ``goal`` in all, from inputs at ``places``, of which 0 to ``length`` are
    seen.
    """
    support, filter = FILTERS[preprocess.interpolation]
    scale = length / goal
    stretch = scale.clamp(min=1)
    centre, reach = ((steps + 0.5) * scale)[:, None], support * stretch
    first = (centre - reach + 0.5).trunc().clamp(min=0)
    end = torch.minimum((centre + reach + 0.5).trunc(), length)
    k = filter((places - centre + 0.5) * (1 / stretch)) * ((places >= first) & (places < end))
    return to_whole(k / k.sum(1, keepdim=True))


def _middle(long: Tensor, short: Tensor) -> Tensor:
    return torch.round((long - short) / 2)
