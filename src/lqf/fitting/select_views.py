"""Mirrored views or none, by leave-one-out of the closed-form head.

The pooling is chosen without views; under it, the head is fitted once more with every image and its mirror image, which
leave together and whose outputs are averaged. A second view doubles the cost of everything that follows, so it is kept

- where there are at most `MOST_IMAGES`,
- where it lowers the cross-entropy of the leave-one-out outputs by at least `GAIN` of what it is without, and
- where the planner expects the solve to take at most `BEARABLE` seconds with it.

What it gains, a network gains from its own symmetry: where left and right matter (text, organs) it is not kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lqf.fitting.select_pooling import MOST_ROWS
from lqf.fitting.select_ridge import Trial
from lqf.solvers.planner import Plan
from lqf.utils.text import byte_count

GAIN = 0.02
"""Least relative gain in leave-one-out cross-entropy."""
MOST_IMAGES = 2000
"""Beyond so many the images show enough, and twice the time buys little."""
BEARABLE = 600.0
"""Expected seconds of a solve with views that were not asked for."""


def worth_it(plain: Trial, mirrored: Trial) -> bool:
    """Whether the mirrored views gain enough."""
    return mirrored.loss <= (1 - GAIN) * plain.loss


def reason_against(rows: int, features: int, item: int, memory: int, cuda: bool) -> str:
    """Why mirrored views are not even tried; empty where they are.

    Args:
        rows: with the mirrored views.
        features: p.
        item: bytes per number.
        memory: free bytes.
        cuda: whether on a GPU.
    """
    side = min(rows, features)
    need = 3 * rows * features * item + 6 * 8 * side * side
    if rows > 2 * MOST_IMAGES or side > MOST_ROWS[cuda]:
        return f"mirrored views are not tried for {rows // 2:,} images; --views flip does"
    if need > memory:
        return f"mirrored views are not tried: their head needs {byte_count(need)} of memory"
    return ""


def too_dear(plan: Plan) -> bool:
    """Whether a solve with mirrored views takes too long."""
    return plan.seconds > BEARABLE


def interleaved(plain: Tensor, mirrored: Tensor) -> Tensor:
    """Features (N, p) of images and of their mirror images as rows (2N, p): the views of an image side by side."""
    return torch.stack([plain, mirrored], 1).flatten(0, 1)
