"""Random crops of whole batches, cut on the device.

All randomness of a run is drawn beforehand on the CPU, so the same seed gives the same views on every device, and the
device never waits for the host.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lqf.data import Images, Preprocess
from lqf.data.augment import Windows, draw_windows
from lqf.data.pixels import PixelImages
from lqf.errors import LQFError
from lqf.runtime.memory import available_bytes


class Views:
    """Training inputs on a device, before normalisation: uint8 (B, 3, s, s), or floating-point tensors as given.

    Pictures are held on the device as one uint8 tensor (N, 3, R, R) where that takes at most half of what is free
    there, and on the host otherwise.

    Args:
        images: opened images.
        preprocess: gives R and s.
        scheme: "crop", "resized" (see `lqf.data.augment`) or "none": the central view.
        device: where the batches are made.
    """

    def __init__(self, images: Images, preprocess: Preprocess, scheme: str, device: torch.device):
        self.scheme, self.device, self.preprocess = scheme, device, preprocess
        self._images, self._held = images, None
        everything = torch.arange(len(images))
        if not isinstance(images, PixelImages):
            if scheme != "none":
                raise LQFError(f"augmentation {scheme!r} needs uint8 images; floating-point tensors go in unchanged")
            self._held = images.batch(everything).to(device)
        elif len(images) * 3 * preprocess.stored**2 <= available_bytes(device) // 2:
            whole = images.resized(everything) if images.store is None else images.store
            self._held = torch.from_numpy(whole).to(device)

    def draw(self, n: int, generator: torch.Generator) -> Windows | None:
        """Windows of ``n`` random views, on the device; None where there is nothing to draw."""
        if self.scheme == "none":
            return None
        windows = draw_windows(n, self.scheme, self.preprocess.stored, self.preprocess.size, generator)
        return Windows(windows.boxes.to(self.device), windows.mirrored.to(self.device))

    def batch(self, rows: Tensor, windows: Windows | None) -> Tensor:
        """The views of the images ``rows`` (B,), which lie on the device, in ``windows`` drawn for them."""
        x = self._whole(rows)
        if x.dtype != torch.uint8:
            return x
        s = self.preprocess.size
        if windows is None:
            top, left, _ = self.preprocess.window(0)
            return x[:, :, top : top + s, left : left + s]
        return cut(x, windows, s) if self.scheme == "crop" else resize(x, windows, s)

    def _whole(self, rows: Tensor) -> Tensor:
        if self._held is not None:
            return self._held[rows]
        pictures: Any = self._images
        return torch.from_numpy(pictures.resized(rows)).to(self.device)


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
