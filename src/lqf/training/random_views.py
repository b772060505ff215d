"""Random crops of whole batches, cut on the device.

All randomness of a run is drawn beforehand on the CPU, so the same seed gives the same views on every device, and the
device never waits for the host.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lqf.data import Images, Preprocess
from lqf.data.crops import Windows, crop, draw_windows, random_rectangles
from lqf.data.pixels import PixelImages
from lqf.errors import LQFError
from lqf.runtime.memory import available_bytes


class RandomViews:
    """Training inputs on a device, before normalisation: uint8 (B, 3, s, s), or floating-point tensors as given.

    Pictures are held on the device as one uint8 tensor (N, 3, R, R) where that takes at most half of what is free
    there, and on the host otherwise.

    Args:
        images: opened images.
        preprocess: gives R and s.
        scheme: "crop", "resized" (see `lqf.data.crops`), "crops": rectangles as the drawn views of ``preprocess`` are,
            or "none": the central view.
        device: where the batches are made.
    """

    def __init__(self, images: Images, preprocess: Preprocess, scheme: str, device: torch.device):
        self.scheme, self.device, self.preprocess = scheme, device, preprocess
        self._images, self._held = images, None
        everything = torch.arange(len(images))
        if not isinstance(images, PixelImages):
            if scheme != "none":
                raise LQFError(f"augmentation {scheme!r} needs pictures; normalised tensors go in unchanged")
            self._held = images.batch(everything).to(device)
        elif len(images) * 3 * preprocess.stored**2 <= available_bytes(device) // 2:
            self._held = (images.whole(everything) if images.store is None else torch.from_numpy(images.store)).to(
                device
            )

    def draw(self, n: int, generator: torch.Generator) -> Windows | None:
        """Windows of ``n`` random views, on the device; None where there is nothing to draw."""
        if self.scheme == "none":
            return None
        p = self.preprocess
        if self.scheme == "crops":
            return random_rectangles(n, p.stored, generator, p.crop_area, p.crop_ratio).to(self.device)
        return draw_windows(n, self.scheme, p.stored, p.size, generator).to(self.device)

    def batch(self, rows: Tensor, windows: Windows | None) -> Tensor:
        """The views of the images ``rows`` (B,), which lie on the device, in ``windows`` drawn for them."""
        x = self._whole(rows)
        if x.dtype != torch.uint8:
            return x
        s = self.preprocess.size
        if windows is None:
            top, left, _ = self.preprocess.window(0)
            return x[:, :, top : top + s, left : left + s]
        return crop(x, windows, s)

    def _whole(self, rows: Tensor) -> Tensor:
        if self._held is not None:
            return self._held[rows]
        return self._images.whole(rows).to(self.device)
