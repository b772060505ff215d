"""How much of what an image's outputs could have been is left open by the training samples."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lqf.utils.exactness import Level


@dataclass(frozen=True)
class Unexplained:
    """tr J_x H⁻¹ J_xᵀ / tr J_x M⁻¹ J_xᵀ: the variance of the outputs over that before any training, from 0 to 1.

    Attributes:
        asked: (Q,) of the images.
        training: (N,) of the training samples, each without its unit.
        level: how exact they are.
        note: what stands behind the level.
    """

    asked: Tensor
    training: Tensor
    level: Level
    note: str = ""
