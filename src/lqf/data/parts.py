"""The same opened images with other views or weights, or some of them only: nothing is decoded or copied again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from lqf.data.images import Images
from lqf.data.pixels import PixelImages, TensorImages
from lqf.data.preprocess import Preprocess
from lqf.data.samples import Index, positions
from lqf.data.shards import Shard
from lqf.errors import LQFError


def has_pixels(images: Images) -> bool:
    """Whether there are pictures, of which other views can be taken, and not tensors."""
    return preprocess_of(images) is not None


def preprocess_of(images: Images) -> Preprocess | None:
    """How pictures are cut into views; None: they are tensors."""
    local = images.local if isinstance(images, Shard) else images
    return local.preprocess if isinstance(local, PixelImages) else None


def with_views(images: Images, preprocess: Preprocess) -> Images:
    """The images in the views of ``preprocess``, which says otherwise what it said when they were opened."""
    if isinstance(images, Shard):
        return replace(images, local=with_views(images.local, preprocess))
    if isinstance(images, PixelImages):
        return replace(images, preprocess=preprocess)
    if preprocess.views != "none":
        raise LQFError(f"views {preprocess.views!r} need pictures; normalised tensors go in unchanged")
    return images


def with_weights(images: Images, weights: np.ndarray) -> Images:
    """The images with other sample weights (N,)."""
    samples = replace(images.samples, weights=weights)
    if isinstance(images, Shard):
        part = with_weights(images.local, weights[images.own.start : images.own.stop])
        return replace(images, samples=samples, local=part)
    if isinstance(images, PixelImages | TensorImages):
        return replace(images, samples=samples)
    raise TypeError(f"{type(images).__name__} has no weights of its own")


def with_labels(images: Images, labels: np.ndarray, classes: tuple[str, ...] | None = None) -> Images:
    """The images with other labels (N,), in the same classes or in others."""
    if isinstance(images, PixelImages | TensorImages):
        classes = images.samples.classes if classes is None else classes
        return replace(images, samples=replace(images.samples, labels=labels, classes=classes))
    raise TypeError(f"{type(images).__name__} has no labels of its own")


def select_images(images: Images, index: Index) -> Images:
    """The images at ``index`` (positions in ascending order, or a boolean mask), on every process."""
    rows = positions(index, len(images))
    samples, hashes = images.samples.select(rows), tuple(images.hashes[i] for i in rows)
    if isinstance(images, Shard):
        mine = rows[(rows >= images.own.start) & (rows < images.own.stop)]
        start = int((rows < images.own.start).sum())
        own = range(start, start + len(mine))
        return Shard(samples, hashes, (), own, select_images(images.local, mine - images.own.start))
    if isinstance(images, PixelImages):
        return PixelPart(samples, images.preprocess, hashes, (), images.workers, None, images, rows)
    if isinstance(images, TensorImages):
        return TensorImages(samples, hashes)
    raise TypeError(f"{type(images).__name__} has no parts")


@dataclass(eq=False)
class PixelPart(PixelImages):
    """Some of other pictures: ``rows`` of ``images``."""

    images: PixelImages = field(repr=False)
    rows: np.ndarray = field(repr=False)

    def _resized(self, index: Index) -> np.ndarray:
        """(B, 3, R, R)."""
        return self.images._resized(self.rows[positions(index, len(self))])
