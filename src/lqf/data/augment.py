"""Random crops of resized images, drawn from a generator or from the contents of each image.

By a generator: the same state gives the same pixels. All numbers of a batch are drawn before any pixel is touched, a
fixed count per image, so neither threads nor the place where the images come from (memory or disk) can change them. By
contents: an image has the same crops wherever it stands, among training images or alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
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
    windows = draw_windows(len(images), scheme, images.shape[-1], preprocess.size, generator)
    return cut_out(images, windows, preprocess, workers)


def cut_out(images: np.ndarray, windows: Windows, preprocess: Preprocess, workers: int) -> Tensor:
    """The windows of resized images, resized to s × s where they have another size."""
    n, s = len(images), preprocess.size
    boxes, mirrored = windows.boxes.tolist(), windows.mirrored.tolist()
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


@dataclass(frozen=True)
class Windows:
    """Where random views lie in their images: ``boxes`` (n, 4) of top, left, height, width; ``mirrored`` (n,) bool."""

    boxes: Tensor
    mirrored: Tensor

    def __getitem__(self, part: slice) -> Windows:
        """Those of some of the images."""
        return Windows(self.boxes[part], self.mirrored[part])


def draw_windows(n: int, scheme: str, side: int, s: int, generator: torch.Generator) -> Windows:
    """Windows of side ``s``, or to be resized to it, for ``n`` images of side ``side``."""
    if scheme not in get_args(Scheme):
        raise LQFError(f"the augmentation {scheme!r} is not known; choose {' or '.join(get_args(Scheme))}")
    boxes = squares(n, side, s, generator) if scheme == "crop" else rectangles(n, side, generator)
    return Windows(boxes, _uniform((n,), generator) < 0.5)


def squares(n: int, side: int, s: int, generator: torch.Generator) -> Tensor:
    """Boxes (n, 4) of side ``s`` at uniform places in a larger square."""
    corners = (_uniform((n, 2), generator) * (side - s + 1)).long()
    return torch.cat([corners, torch.full((n, 2), s)], 1)


def rectangles(n: int, side: int, generator: torch.Generator) -> Tensor:
    """Boxes (n, 4) of random area and ratio in a square; the whole square where none of ten fits."""
    area, ratio, places = (_uniform((n, k), generator) for k in (_TRIES, _TRIES, 2))
    return _boxes(area, ratio, places, side)


def windows_by_contents(hashes: Sequence[str], view: int, side: int) -> Windows:
    """A rectangle like those of `rectangles`, from the hash of each image and the number of the view."""
    digests = (hashlib.sha512(f"{content} {view}".encode()).digest() for content in hashes)
    words = np.frombuffer(b"".join(digests), ">u4").reshape(-1, 16).astype(np.float64)
    area, ratio, places, mirrored, _ = torch.from_numpy(words / 2**32).split((6, 6, 2, 1, 1), 1)
    return Windows(_boxes(area, ratio, places, side), mirrored[:, 0] < 0.5)


def _boxes(area: Tensor, ratio: Tensor, places: Tensor, side: int) -> Tensor:
    """From uniform numbers: areas and ratios (n, tries), of which the first that fits is taken; places (n, 2)."""
    area = (_AREA[0] + area * (_AREA[1] - _AREA[0])) * side * side
    ratio = (math.log(_RATIO[0]) + ratio * math.log(_RATIO[1] / _RATIO[0])).exp()
    w, h = (area * ratio).sqrt().round().long(), (area / ratio).sqrt().round().long()  # (n, tries)
    fits = (w >= 1) & (w <= side) & (h >= 1) & (h <= side)
    first = fits.int().argmax(1, keepdim=True)
    sides = torch.cat([h.gather(1, first), w.gather(1, first)], 1)
    sides = torch.where(fits.any(1, keepdim=True), sides, side)  # (n, 2)
    corners = (places * (side - sides + 1)).long()
    return torch.cat([corners, sides], 1)


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """In [0, 1), float64: in float32, n · u may round up to n."""
    return torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device).cpu()
