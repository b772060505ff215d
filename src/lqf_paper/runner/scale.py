"""How large an experiment is: epochs, and how much of the paper's grids is searched."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Scale:
    """The size of a run.

    Attributes:
        name: "paper", "short" or "quick": which column of the grids (`lqf_paper.runner.grid`).
        epochs: passes over the training images of the mini-batch methods.
        least_steps: on few images there are more epochs, so that a method takes so many steps at the least.
        size: side of the input in pixels; None: the backbone's own.
        classes, per_class, test_per_class: limits on the data; None: none.
        pool_channels: of bilinear pooling.
        shots: images per class of the experiments with few images; None: all.
        draws: seeds of those experiments.
        steps: in which data arrive.
        eigenvalues: of every Hessian, the largest ones.
        curvature_images: at most so many, on which Hessians are taken.
        shares: of the training images that are dropped.
        seeds: of the winner of every search; the search itself has the first of them.
        select: "validation": every setting is also tried on a part of the training images and judged on the rest.
    """

    name: str
    epochs: int = 30
    least_steps: int = 300
    size: int | None = None
    classes: int | None = None
    per_class: int | None = None
    test_per_class: int | None = None
    pool_channels: int = 256
    shots: tuple[int | None, ...] = (1, 2, 5, 10, 20, None)
    draws: int = 3
    steps: int = 4
    eigenvalues: int = 20
    curvature_images: int = 128
    shares: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8)
    seeds: int = 1
    select: str = "test"

    def epochs_for(self, n: int, batch_size: int = 28) -> int:
        """Epochs on n images: as many as make `least_steps` steps, `epochs` at the least."""
        return max(self.epochs, math.ceil(self.least_steps * min(batch_size, n) / n))

    def describe(self) -> dict[str, Any]:
        """JSON values."""
        names = ("name", "epochs", "least_steps", "seeds", "select")
        return {name: getattr(self, name) for name in names}


PAPER = Scale(
    "paper",
    draws=5,
    eigenvalues=50,
    curvature_images=256,
    shares=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
)
SHORT = Scale("short", epochs=25, shots=(1, 5, 20, None), draws=2)
QUICK = Scale(
    "quick",
    epochs=3,
    least_steps=6,
    size=64,
    classes=4,
    per_class=6,
    test_per_class=6,
    pool_channels=8,
    shots=(2, None),
    draws=1,
    steps=2,
    eigenvalues=4,
    curvature_images=8,
    shares=(0.25, 0.5),
)
SCALES = {s.name: s for s in (PAPER, SHORT, QUICK)}
