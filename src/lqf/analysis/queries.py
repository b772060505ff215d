"""Images whose predictions are asked about, opened once: their kernel with the training data is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lqf.data import Images


@dataclass(eq=False)
class Queries:
    """Q opened images; made by `Analysis.queries`, given to its other methods as often as you like.

    Attributes:
        images: the images.
        labels: (Q,) in the model's classes, −1 where unknown.
        kept: what a method of solution has computed for them.
    """

    images: Images
    labels: Tensor
    kept: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """(Q,)."""
        return self.images.samples.ids

    def __len__(self) -> int:
        return len(self.images)

    @classmethod
    def of(cls, images: Images) -> Queries:
        """Opened images with the labels of their samples."""
        return cls(images, torch.tensor(images.samples.labels))
