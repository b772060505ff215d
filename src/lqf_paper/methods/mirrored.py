"""Images as a mirror shows them, for predictions averaged over both."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from lqf.data import Images, Samples
from lqf.data.samples import Index


@dataclass(eq=False)
class Mirrored:
    """The same images, every view of them mirrored."""

    samples: Samples
    skipped: tuple[tuple[str, str], ...]
    hashes: tuple[str, ...]
    plain: Images = field(repr=False)

    @classmethod
    def of(cls, images: Images) -> Mirrored:
        """The mirror images of ``images``."""
        return cls(images.samples, images.skipped, images.hashes, images)

    @property
    def own(self) -> range:
        return self.plain.own

    @property
    def n_views(self) -> int:
        return self.plain.n_views

    def __len__(self) -> int:
        return len(self.plain)

    def batch(self, index: Index, view: int = 0) -> Tensor:
        return self.plain.batch(index, view).flip(-1)

    def whole(self, index: Index) -> Tensor:
        return self.plain.whole(index).flip(-1)
