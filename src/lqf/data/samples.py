"""The table of samples: one row per image, with a stable id, and no pixels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from lqf.data.sources import Source
from lqf.errors import LQFError
from lqf.utils.text import counted, listed

Index = Tensor | np.ndarray | Sequence[int] | Sequence[bool]


@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """One row per image. It knows how to read the image and does not hold pixels.

    Attributes:
        ids: unique and stable: the path inside the folder or beside the manifest, with `/`; "0", "1", … for arrays.
        classes: names of the classes; `labels` index into them.
        labels: (N,) int64; −1 where the label is not known (images to predict).
        weights: (N,) float64, the sᵢ of the objective.
        groups: samples of one group leave together in leave-one-out; None: each sample alone.
        source: where the images are read from.
    """

    ids: tuple[str, ...]
    classes: tuple[str, ...]
    labels: np.ndarray
    weights: np.ndarray
    groups: tuple[str, ...] | None
    source: Source

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", _frozen(self.labels, np.int64))
        object.__setattr__(self, "weights", _frozen(self.weights, np.float64))
        n = len(self.ids)
        columns = {"labels": self.labels, "weights": self.weights, "groups": self.groups, "source": self.source}
        for name, column in columns.items():
            if column is not None and len(column) != n:
                raise LQFError(f"{self.name} has {counted(n, 'image')} and {len(column)} {name}; give one per image")
        self._check_ids()
        self._check_labels()
        self._check_weights()

    @property
    def name(self) -> str:
        """What the samples came from, for sentences."""
        return self.source.name

    @property
    def counts(self) -> np.ndarray:
        """(C,) number of samples of each class."""
        return np.bincount(self.labels[self.labels >= 0], minlength=len(self.classes))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Samples({self.name}: {counted(len(self), 'image')}, {counted(len(self.classes), 'class')})"

    def select(self, index: Index) -> Samples:
        """The rows at ``index`` (positions or a boolean mask), in that order; the classes stay."""
        rows = positions(index, len(self))
        return Samples(
            ids=tuple(self.ids[i] for i in rows),
            classes=self.classes,
            labels=self.labels[rows],
            weights=self.weights[rows],
            groups=None if self.groups is None else tuple(self.groups[i] for i in rows),
            source=self.source.select(rows),
        )

    def _check_ids(self) -> None:
        if len(set(self.ids)) < len(self.ids):
            twice = [id for id, n in Counter(self.ids).items() if n > 1]
            raise LQFError(f"{self.name} names {listed(twice)} more than once; give a sample once, with weight 2")

    def _check_labels(self) -> None:
        if len(self.labels) and not (-1 <= self.labels.min() and self.labels.max() < len(self.classes)):
            raise LQFError(f"labels must lie between 0 and {len(self.classes) - 1}, or be -1 where unknown")

    def _check_weights(self) -> None:
        bad = [self.ids[i] for i in np.flatnonzero(~(np.isfinite(self.weights) & (self.weights >= 0)))]
        if bad:
            raise LQFError(f"sample weights must be finite and not negative; those of {listed(bad)} are not")


def positions(index: Index, n: int) -> np.ndarray:
    """An index in any of its forms as (B,) int64 positions in 0 … n − 1."""
    rows = index.detach().cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    if rows.dtype == bool:
        if rows.shape != (n,):
            raise LQFError(f"a mask over {counted(n, 'sample')} needs that many entries, not shape {rows.shape}")
        return np.flatnonzero(rows)
    if rows.size == 0:
        return np.zeros(0, np.int64)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise LQFError(f"an index is a row of whole numbers, not shape {rows.shape} of {rows.dtype}")
    if rows.min() < -n or rows.max() >= n:
        raise LQFError(f"an index from {rows.min()} to {rows.max()} does not fit {counted(n, 'sample')}")
    return np.where(rows < 0, rows + n, rows).astype(np.int64)


def _frozen(values: np.ndarray, dtype: type) -> np.ndarray:
    out: np.ndarray = np.array(values, dtype=dtype)  # a copy: nobody else can change the table
    out.setflags(write=False)
    return out
