"""Random crops of resized images, drawn from a generator: the same generator state gives the same pixels.

All numbers of a batch are drawn before any pixel is touched, a fixed count per image, so neither threads nor the place
where the images come from (memory or disk) can change them.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lqf.data.parallel import in_order
from lqf.data.preprocess import RESAMPLING, Preprocess
from lqf.errors import LQFError

Scheme = Literal["crop", "resized"]
_TRIES = 10
_AREA = (0.08, 1.0)
_RATIO = (3 / 4, 4 / 3)


def augment(
    images: np.ndarray, scheme: str, preprocess: Preprocess, generator: torch.Generator, workers: int
) -> Tensor:
    """Random views (B, 3, s, s) of resized images (B, 3, R, R), both uint8.

    Args:
        images: The whole resized images.
        scheme: "crop": s × s at a uniform place, mirrored with probability ½. "resized": a rectangle with a uniform
            share of the area (0.08 to 1) and a log-uniform aspect ratio (3/4 to 4/3), resized to s × s, and mirrored
            likewise.
        preprocess: Gives s and the resampling filter.
        generator: Where the randomness comes from.
        workers: Threads that resize.
    """
    if scheme not in get_args(Scheme):
        raise LQFError(f"the augmentation {scheme!r} is not known; choose {' or '.join(get_args(Scheme))}")
    n, side, s = len(images), images.shape[-1], preprocess.size
    boxes = squares(n, side, s, generator) if scheme == "crop" else rectangles(n, side, generator)
    mirrored = (_uniform((n,), generator) < 0.5).tolist()
    filter = RESAMPLING[preprocess.interpolation]
    out = np.empty((n, 3, s, s), np.uint8)

    def cut(i: int) -> None:
        top, left, h, w = boxes[i]
        piece = images[i, :, top : top + h, left : left + w]
        if (h, w) != (s, s):
            picture = Image.fromarray(np.ascontiguousarray(piece.transpose(1, 2, 0)))
            piece = np.asarray(picture.resize((s, s), filter)).transpose(2, 0, 1)
        out[i] = piece[..., ::-1] if mirrored[i] else piece

    for _ in in_order(cut, range(n), workers):
        pass
    return torch.from_numpy(out)


def squares(n: int, side: int, s: int, generator: torch.Generator) -> list[tuple[int, int, int, int]]:
    """Top, left, height and width of ``n`` squares of side ``s`` at uniform places in a larger square."""
    corners = (_uniform((n, 2), generator) * (side - s + 1)).long().tolist()
    return [(top, left, s, s) for top, left in corners]


def rectangles(n: int, side: int, generator: torch.Generator) -> list[tuple[int, int, int, int]]:
    """Top, left, height and width of ``n`` random rectangles in a square; the whole square after ten misfits."""
    area, ratio, places = (_uniform((n, *shape), generator) for shape in ((_TRIES,), (_TRIES,), (2,)))
    area = (_AREA[0] + area * (_AREA[1] - _AREA[0])) * side * side
    ratio = (math.log(_RATIO[0]) + ratio * math.log(_RATIO[1] / _RATIO[0])).exp()
    w, h = (area * ratio).sqrt().round().long(), (area / ratio).sqrt().round().long()  # (n, tries)
    fits = (w >= 1) & (w <= side) & (h >= 1) & (h <= side)
    out = []
    for i in range(n):
        tries = fits[i].nonzero()
        height, width = (int(h[i, tries[0]]), int(w[i, tries[0]])) if len(tries) else (side, side)
        top, left = int(places[i, 0] * (side - height + 1)), int(places[i, 1] * (side - width + 1))
        out.append((top, left, height, width))
    return out


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """In [0, 1), float64: in float32, n · u may round up to n."""
    return torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device).cpu()
