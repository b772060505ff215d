"""Images for measurements: smooth random pictures, a faint pattern per class, the same for the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from lqf.data import Images, Preprocess, load_samples, open_images
from lqf.data.pixels import PixelImages

CELLS = 7
"""Side of the coarse grid that a picture is interpolated from."""


def pictures(n: int, classes: int, side: int, seed: int = 0, signal: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """(n, side, side, 3) uint8 and labels in turn; the patterns of the classes do not depend on ``seed``."""
    patterns = torch.randn(classes, 3, CELLS, CELLS, generator=torch.Generator().manual_seed(99))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    out = np.empty((n, side, side, 3), np.uint8)
    for rows in torch.arange(n).split(256):
        own = torch.randn(len(rows), 3, CELLS, CELLS, generator=generator)
        coarse = own + signal * patterns[labels[rows]]
        smooth = F.interpolate(coarse, size=(side, side), mode="bilinear", align_corners=False)
        pixels = 128 + 45 * smooth + 8 * torch.randn(side, side, generator=generator)
        out[rows.numpy()] = pixels.clamp_(0, 255).permute(0, 2, 3, 1).to(torch.uint8).numpy()
    return out, labels.numpy()


def write_folder(folder: Path, classes: int, train: int = 12, test: int = 8, side: int = 64) -> Path:
    """A folder with train/ and test/, so many PNG images of each class in either."""
    for part, per_class, seed in (("train", train, 0), ("test", test, 1)):
        for i, (pixels, k) in enumerate(zip(*pictures(per_class * classes, classes, side, seed), strict=True)):
            path = folder / part / f"class{k}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return folder


def opened(n: int, classes: int, preprocess: Preprocess, seed: int = 0) -> Images:
    """``n`` pictures, opened."""
    return open_images(load_samples(*pictures(n, classes, preprocess.stored, seed)), preprocess)


def repeated(n: int, classes: int, preprocess: Preprocess, block: int = 256) -> Images:
    """``n`` images in memory without making as many: a block of pictures, again and again."""
    x, _ = pictures(min(n, block), classes, preprocess.stored)
    samples = load_samples(torch.zeros(n, 1), np.arange(n) % classes, tensors="normalized")
    store = np.resize(x.transpose(0, 3, 1, 2), (n, 3, preprocess.stored, preprocess.stored))
    return PixelImages(samples, preprocess, ("",) * n, (), 1, store)


def labels_of(images: Images) -> Tensor:
    """(N,) class indices."""
    return torch.tensor(images.samples.labels)
