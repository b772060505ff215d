"""Images whose predictions are asked about, opened once; an analysis keeps their kernel with the training data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lqf.data import Images
from lqf.utils.text import counted


@dataclass(eq=False)
class Queries:
    """Q opened images; made by `Analysis.queries`, given to its other methods as often as you like.

    Attributes:
        images: the images.
        labels: (Q,) in the model's classes, −1 where unknown.
    """

    images: Images
    labels: Tensor

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """(Q,)."""
        return self.images.samples.ids

    def __repr__(self) -> str:
        return f"Queries({counted(len(self), 'image')}, {int((self.labels >= 0).sum()) or 'none'} with a label)"

    def __len__(self) -> int:
        return len(self.images)

    @classmethod
    def of(cls, images: Images) -> Queries:
        """Opened images with the labels of their samples."""
        return cls(images, torch.tensor(images.samples.labels))
