"""Pictures in parts, decoded when they are needed: a folder of any size takes the memory of a few parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lqf.data.decode import Unreadable
from lqf.data.images import check_skipped, read_all
from lqf.data.parallel import read_ahead
from lqf.data.pixels import PixelImages, decoded
from lqf.data.preprocess import Preprocess
from lqf.data.samples import Samples
from lqf.utils.progress import Progress


@dataclass(frozen=True, eq=False)
class Part:
    """Pictures that follow each other.

    Attributes:
        rows: (M,) positions, among all samples, of those that could be read.
        images: these; None: there is none.
        skipped: positions of those that could not be read, and why.
    """

    rows: np.ndarray
    images: PixelImages | None
    skipped: tuple[tuple[int, str], ...]


def stream_images(
    samples: Samples, preprocess: Preprocess, rows: np.ndarray, per_part: int, workers: int
) -> Iterator[Part]:
    """The pictures at ``rows`` in order, ``per_part`` readable ones at a time; the last part may have fewer.

    So the parts do not depend on the number of threads, and not on how long the folder is. While one part is used, the
    next is decoded: at most two parts and ``per_part + workers`` pictures are held.
    """

    def read(i: int) -> tuple[int, str, np.ndarray | str]:
        try:
            digest, pixels = decoded(samples, preprocess, i)
        except Unreadable as e:
            return i, "", str(e)
        return i, digest, pixels

    filling = _Filling(samples, preprocess, per_part, workers)
    for i, digest, found in read_ahead(read, rows.tolist(), workers, per_part + workers):
        if isinstance(found, str):
            filling.skipped.append((i, found))
            continue
        filling.add(i, digest, found)
        if len(filling.rows) == per_part:
            yield filling.part()
    if filling.rows or filling.skipped:
        yield filling.part()


@dataclass(eq=False)
class _Filling:
    """The part that is being filled."""

    samples: Samples
    preprocess: Preprocess
    per_part: int
    workers: int
    rows: list[int] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)
    skipped: list[tuple[int, str]] = field(default_factory=list)
    store: np.ndarray | None = None

    def add(self, i: int, digest: str, pixels: np.ndarray) -> None:
        if self.store is None:
            self.store = np.empty((self.per_part, *pixels.shape), np.uint8)
        self.store[len(self.rows)] = pixels
        self.rows.append(i)
        self.hashes.append(digest)

    def part(self) -> Part:
        """What is there; filling begins again."""
        rows, images = np.array(self.rows, dtype=np.int64), None
        if self.store is not None:
            own, store = self.samples.select(rows), self.store[: len(rows)]
            images = PixelImages(own, self.preprocess, tuple(self.hashes), (), self.workers, store)
        part = Part(rows, images, tuple(self.skipped))
        self.rows, self.hashes, self.skipped, self.store = [], [], [], None
        return part


def check_readable(samples: Samples, preprocess: Preprocess, workers: int, progress: Progress) -> None:
    """Refuse pictures of which some cannot be read; all of them are decoded for it, and none is held."""

    def reason(i: int) -> str:
        try:
            decoded(samples, preprocess, i)
        except Unreadable as e:
            return str(e)
        return ""

    found = read_all(reason, len(samples), workers, progress, "checking images")
    check_skipped(samples, tuple((samples.ids[i], why) for i, why in enumerate(found) if why), strict=True)
