"""Crops of resized images: windows drawn from a generator or from the contents of each image, and what they show.

By a generator: the same state gives the same pixels. All numbers of a batch are drawn before any pixel is touched, a
fixed count per image, so neither threads nor the place where the images come from (memory or disk) can change them. By
contents: an image has the same crops wherever it stands, among training images or alone. Random crops are cut wherever
the pixels lie (`random_crops`); fixed ones belong to a model and are resampled as its images are, by Pillow
(`fixed_crops`) or by tensors with the same result (`lqf.data.resample`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from lqf.data.parallel import in_order
from lqf.data.preprocess import ANY_AREA, RESAMPLING, SOME_RATIO, Preprocess
from lqf.errors import LQFError

Scheme = Literal["crop", "resized"]
_TRIES = 10


def random_crops(whole: Tensor, scheme: str, size: int, generator: torch.Generator) -> Tensor:
    """Random views (B, 3, s, s) of resized images (B, 3, R, R), both uint8, on their device.

    Args:
        whole: the images, not cropped.
        scheme: "crop": s × s at a uniform place, mirrored with probability ½. "resized": a rectangle with a uniform
            share of the area (0.08 to 1) and a log-uniform aspect ratio (3/4 to 4/3), resized to s × s, and mirrored
            likewise.
        size: s.
        generator: where the randomness comes from.
    """
    return crop(whole, draw_windows(len(whole), scheme, whole.shape[-1], size, generator).to(whole.device), size)


def crop(whole: Tensor, windows: Windows, s: int) -> Tensor:
    """Windows of images (B, 3, R, R), resized to s × s where they have another size: uint8 (B, 3, s, s)."""
    if not len(whole):
        return whole.new_zeros(0, 3, s, s)
    return resize(whole, windows, s) if windows.resized else cut(whole, windows, s)


def cut(x: Tensor, windows: Windows, s: int) -> Tensor:
    """Windows of s × s pixels of images (B, 3, R, R), mirrored where they should be: (B, 3, s, s), by one gather."""
    steps = torch.arange(s, device=x.device)
    across = torch.where(windows.mirrored[:, None], s - 1 - steps, steps)  # (B, s)
    ys, xs = windows.boxes[:, :1] + steps, windows.boxes[:, 1:2] + across
    image, channel = (torch.arange(k, device=x.device) for k in x.shape[:2])
    return x[image[:, None, None, None], channel[:, None, None], ys[:, None, :, None], xs[:, None, None, :]]


def resize(x: Tensor, windows: Windows, s: int) -> Tensor:
    """Windows of any size, resized to s × s by bilinear interpolation: uint8 (B, 3, s, s)."""
    side = x.shape[-1]
    top, left, h, w = windows.boxes.float().unbind(1)
    sign = 1.0 - 2.0 * windows.mirrored
    zero = torch.zeros_like(top)
    across = torch.stack([sign * w / side, zero, (2 * left + w) / side - 1], 1)
    down = torch.stack([zero, h / side, (2 * top + h) / side - 1], 1)
    grid = F.affine_grid(torch.stack([across, down], 1), [len(x), x.shape[1], s, s], align_corners=False)
    out = F.grid_sample(x.float(), grid, padding_mode="border", align_corners=False)
    return out.round_().to(torch.uint8)


def fixed_crops(images: np.ndarray, windows: Windows, preprocess: Preprocess, workers: int) -> Tensor:
    """The windows of resized images, resized to s × s by Pillow as whole images are; some threads share the work."""
    n, s = len(images), preprocess.size
    boxes, mirrored = windows.boxes.tolist(), windows.mirrored.tolist()
    filter = RESAMPLING[preprocess.interpolation]
    out = np.empty((n, 3, s, s), np.uint8)

    def one(i: int) -> None:
        top, left, h, w = boxes[i]
        piece = images[i, :, top : top + h, left : left + w]
        if (h, w) != (s, s):
            picture = Image.fromarray(np.ascontiguousarray(piece.transpose(1, 2, 0)))
            piece = np.asarray(picture.resize((s, s), filter)).transpose(2, 0, 1)
        out[i] = piece[..., ::-1] if mirrored[i] else piece

    for _ in in_order(one, range(n), workers):
        pass
    return torch.from_numpy(out)


@dataclass(frozen=True)
class Windows:
    """Where views lie in their images.

    Attributes:
        boxes: (n, 4) top, left, height, width.
        mirrored: (n,) bool.
        resized: whether boxes have sizes of their own, or all of them that of the view.
    """

    boxes: Tensor
    mirrored: Tensor
    resized: bool = True

    def __getitem__(self, part: slice) -> Windows:
        """Those of some of the images."""
        return Windows(self.boxes[part], self.mirrored[part], self.resized)

    def to(self, device: torch.device) -> Windows:
        """The same on a device."""
        return Windows(self.boxes.to(device), self.mirrored.to(device), self.resized)


def draw_windows(n: int, scheme: str, side: int, s: int, generator: torch.Generator) -> Windows:
    """Windows of side ``s``, or to be resized to it, for ``n`` images of side ``side``."""
    if scheme not in get_args(Scheme):
        raise LQFError(f"the augmentation {scheme!r} is not known; choose {' or '.join(get_args(Scheme))}")
    if scheme == "resized":
        return random_rectangles(n, side, generator)
    return Windows(squares(n, side, s, generator), _uniform((n,), generator) < 0.5, False)


def squares(n: int, side: int, s: int, generator: torch.Generator) -> Tensor:
    """Boxes (n, 4) of side ``s`` at uniform places in a larger square."""
    corners = (_uniform((n, 2), generator) * (side - s + 1)).long()
    return torch.cat([corners, torch.full((n, 2), s)], 1)


def random_rectangles(
    n: int, side: int, generator: torch.Generator, least: float = ANY_AREA, most: float = SOME_RATIO
) -> Windows:
    """Rectangles of random area and ratio (see `windows_by_contents`) in a square, mirrored with probability ½; the
    whole square where none of ten fits.
    """
    area, ratio, places = (_uniform((n, k), generator) for k in (_TRIES, _TRIES, 2))
    return Windows(_boxes(area, ratio, places, side, least, most), _uniform((n,), generator) < 0.5)


def windows_by_contents(
    hashes: Sequence[str], view: int, side: int, least: float = ANY_AREA, most: float = SOME_RATIO
) -> Windows:
    """A rectangle like those of `random_rectangles`, from the hash of each image and the number of the view.

    Args:
        hashes: of the images.
        view: number of the view.
        side: R, of the images.
        least: share of the image's area; the share is uniform from there to 1.
        most: r; width over height is log-uniform in [1/r, r].
    """
    digests = (hashlib.sha512(f"{content} {view}".encode()).digest() for content in hashes)
    words = np.frombuffer(b"".join(digests), ">u4").reshape(-1, 16).astype(np.float64)
    area, ratio, places, mirrored, _ = torch.from_numpy(words / 2**32).split((6, 6, 2, 1, 1), 1)
    return Windows(_boxes(area, ratio, places, side, least, most), mirrored[:, 0] < 0.5)


def fixed_windows(hashes: Sequence[str], view: int, preprocess: Preprocess) -> Windows:
    """Where a drawn view of ``preprocess`` lies in the images with these hashes."""
    return windows_by_contents(hashes, view, preprocess.stored, preprocess.drawn_area, preprocess.drawn_ratio)


def _boxes(area: Tensor, ratio: Tensor, places: Tensor, side: int, least: float, most: float) -> Tensor:
    """From uniform numbers: areas and ratios (n, tries), of which the first that fits is taken; places (n, 2)."""
    area = (least + area * (1 - least)) * side * side
    low, high = 1 / most, most
    ratio = (math.log(low) + ratio * math.log(high / low)).exp()
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
