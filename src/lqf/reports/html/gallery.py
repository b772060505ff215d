"""Pictures on a page: each read once, small, and not more of them than a page should hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from lqf.data import Samples
from lqf.reports.pictures import data_uri, thumbnail


@dataclass
class Gallery:
    """Thumbnails of some samples as data URIs.

    Attributes:
        samples: where the pictures come from.
        side: their size in pixels.
    """

    samples: Samples
    side: int = 192
    _made: dict[int, str] = field(default_factory=dict, repr=False)

    def __call__(self, i: int) -> str:
        """The picture of sample i; empty for a tensor, which has none."""
        if i not in self._made:
            image = thumbnail(self.samples, i, self.side)
            self._made[i] = "" if image is None else data_uri(image)
        return self._made[i]
