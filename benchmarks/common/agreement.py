"""How well effects of training images on scores agree, image by image."""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch
from torch import Tensor

Z = 1.96
"""Half the width of a 95 % interval, in standard errors."""


def agreement(found: Tensor, actual: Tensor) -> dict[str, Any]:
    """Of effects (N, Q): Spearman's and Pearson's correlation over the training images, for every image asked about."""
    return {"spearman": over_images(ranks(found), ranks(actual)), "pearson": over_images(found, actual)}


def over_images(a: Tensor, b: Tensor) -> dict[str, Any]:
    """Correlation of every image: mean with a 95 % interval, median, lowest."""
    each = [float(torch.corrcoef(torch.stack([x, y]))[0, 1]) for x, y in zip(a.T, b.T, strict=True)]
    mean = statistics.mean(each)
    wide = Z * statistics.stdev(each) / math.sqrt(len(each)) if len(each) > 1 else math.nan
    interval = [mean - wide, mean + wide] if len(each) > 1 else None
    return {"mean": mean, "interval": interval, "median": statistics.median(each), "lowest": min(each)}


def ranks(values: Tensor) -> Tensor:
    """(N, Q) place of every value in its column."""
    return values.argsort(0).argsort(0).double()
