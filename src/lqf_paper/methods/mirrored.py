"""Images as a mirror shows them, for predictions averaged over both."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from lqf.data import Images, Samples
from lqf.data.samples import Index


@dataclass(eq=False)
class Mirrored:
    """The same images, every view of them mirrored."""

    samples: Samples
    skipped: tuple[tuple[str, str], ...]
    hashes: tuple[str, ...]
    whole: Images = field(repr=False)

    @classmethod
    def of(cls, images: Images) -> Mirrored:
        """The mirror images of ``images``."""
        return cls(images.samples, images.skipped, images.hashes, images)

    @property
    def own(self) -> range:
        return self.whole.own

    @property
    def n_views(self) -> int:
        return self.whole.n_views

    def __len__(self) -> int:
        return len(self.whole)

    def batch(self, index: Index, view: int = 0) -> Tensor:
        return self.whole.batch(index, view).flip(-1)

    def augmented(self, index: Index, scheme: str, generator: torch.Generator) -> Tensor:
        return self.whole.augmented(index, scheme, generator).flip(-1)
