"""Samples of two sources as one table: those that a model was fitted on, and those that were added to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from PIL import Image

from lqf.data.decode import Raw
from lqf.data.samples import Samples
from lqf.data.sources import FileSource, PictureSource, Source, TensorSource
from lqf.errors import LQFError


@dataclass(frozen=True)
class JoinedSource:
    """The images of one source, then those of another."""

    first: FileSource | PictureSource | JoinedSource
    second: FileSource | PictureSource | JoinedSource
    rows: np.ndarray = field(repr=False)  # numbers over both
    shape: None = None

    @property
    def name(self) -> str:
        """Both."""
        return f"{self.first.name} and {self.second.name}"

    def __len__(self) -> int:
        return len(self.rows)

    def raw(self, i: int) -> Raw:
        """The i-th image, undecoded."""
        source, k = self._at(i)
        return source.raw(k)

    def read(self, i: int) -> Image.Image:
        """The i-th image, upright and RGB."""
        source, k = self._at(i)
        return source.read(k)

    def select(self, rows: np.ndarray) -> JoinedSource:
        """The source of these rows."""
        return replace(self, rows=self.rows[rows])

    def _at(self, i: int) -> tuple[FileSource | PictureSource | JoinedSource, int]:
        row, n = int(self.rows[i]), len(self.first)
        return (self.first, row) if row < n else (self.second, row - n)


def join_samples(first: Samples, second: Samples) -> Samples:
    """Both tables, one after the other; both have the same classes, and no id in common."""
    if first.classes != second.classes:
        raise ValueError("tables are joined that number their classes differently")
    return Samples(
        ids=first.ids + second.ids,
        classes=first.classes,
        labels=np.concatenate([first.labels, second.labels]),
        weights=np.concatenate([first.weights, second.weights]),
        groups=_groups(first, second),
        source=join_sources(first.source, second.source),
    )


def join_sources(a: Source, b: Source) -> Source:
    """Files with files, tensors with tensors of the same shape, pictures with either pictures or files."""
    if isinstance(a, FileSource) and isinstance(b, FileSource):
        return FileSource(a.name if a.name == b.name else f"{a.name} and {b.name}", (*a.paths, *b.paths))
    if isinstance(a, TensorSource) and isinstance(b, TensorSource):
        items = [a.items[int(i)] for i in a.rows] + [b.items[int(i)] for i in b.rows]
        return TensorSource(a.name, items, np.arange(len(items)))
    if isinstance(a, TensorSource) or isinstance(b, TensorSource):
        raise LQFError(f"normalised tensors and pictures do not go together ({a.name}, {b.name}); give one kind")
    assert isinstance(a, FileSource | PictureSource | JoinedSource)
    assert isinstance(b, FileSource | PictureSource | JoinedSource)
    return JoinedSource(a, b, np.arange(len(a) + len(b)))


def _groups(first: Samples, second: Samples) -> tuple[str, ...] | None:
    """Samples of a table without groups are alone, each under its own id, as soon as the other table has groups."""
    if first.groups is None and second.groups is None:
        return None
    return (first.groups or first.ids) + (second.groups or second.ids)
