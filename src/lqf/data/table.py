"""What a reader of one kind of source returns, before labels become numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lqf.data.sources import Source

Label = int | str


@dataclass(frozen=True)
class Table:
    """Columns as they were found.

    Attributes:
        source: where the images are read from.
        ids: one per image.
        labels: names or whole numbers; None where the source has no labels.
        weights: one per image, or None.
        groups: one per image, or None.
    """

    source: Source
    ids: Sequence[str]
    labels: Sequence[Label] | None = None
    weights: Sequence[float] | np.ndarray | None = None
    groups: Sequence[str] | None = None
