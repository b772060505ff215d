"""How far images lie from what the training samples settle."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lqf.utils.exactness import Level


@dataclass(frozen=True)
class Variances:
    """J_x H⁻¹ J_xᵀ in one metric, up to a factor that is the same for all.

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
