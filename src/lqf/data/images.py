"""Pixels of samples: decoded in parallel, kept in memory when they fit, and otherwise decoded again for every batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from torch import Tensor

from lqf.data.decode import Unreadable, sha256
from lqf.data.parallel import in_order
from lqf.data.pixels import PixelImages, Skipped, TensorImages, decoded
from lqf.data.preprocess import Preprocess
from lqf.data.samples import Index, Samples
from lqf.data.sources import TensorSource
from lqf.errors import LQFError
from lqf.runtime.memory import available_ram, cores
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import counted

T = TypeVar("T")


class Images(Protocol):
    """What everything downstream uses.

    Attributes:
        samples: those whose image could be read.
        skipped: (id, reason) of the samples that could not be read.
        hashes: sha256 of each sample's file, array or tensor bytes.
        own: the samples whose pixels this process can give; all, unless many processes share the work.
    """

    samples: Samples
    skipped: Skipped
    hashes: tuple[str, ...]

    @property
    def own(self) -> range: ...

    @property
    def n_views(self) -> int:
        """Fixed views per sample."""
        ...

    def __len__(self) -> int:
        """Number of samples, not of views."""
        ...

    def batch(self, index: Index, view: int = 0) -> Tensor:
        """uint8 (B, 3, s, s), one fixed view; or the floating-point tensors as they were given."""
        ...

    def whole(self, index: Index) -> Tensor:
        """uint8 (B, 3, R, R), resized and not yet cropped, for crops on a device (`lqf.data.crops`, `rows`)."""
        ...


def open_images(
    samples: Samples,
    preprocess: Preprocess,
    *,
    strict: bool = False,
    workers: int | None = None,
    memory_bytes: int | None = None,
    progress: Progress = SILENT,
) -> Images:
    """Read every image once: hash it, find out whether it can be decoded, and keep it resized if all fit in memory.

    Args:
        samples: what to read.
        preprocess: resize and crop.
        strict: refuse images that cannot be read, instead of listing them in ``skipped``.
        workers: threads; default: one per processor.
        memory_bytes: what the resized images may take, N · 3 · R² bytes; default: half of what is free.
        progress: called after every image.

    Returns:
        The images. Some may be skipped, so check again that the samples left are trainable.
    """
    workers = cores() if workers is None else max(1, workers)
    if isinstance(samples.source, TensorSource):
        return _open_tensors(samples, samples.source, preprocess, workers, progress)
    store = _room(len(samples), preprocess.stored, memory_bytes)

    def read(i: int) -> tuple[str, str]:  # the hash, or the reason why there is none
        try:
            digest, pixels = decoded(samples, preprocess, i)
        except Unreadable as e:
            return "", str(e)
        if store is not None:
            store[i] = pixels
        return digest, ""

    results = read_all(read, len(samples), workers, progress)
    skipped = tuple((samples.ids[i], reason) for i, (_, reason) in enumerate(results) if reason)
    check_skipped(samples, skipped, strict)
    hashes = tuple(digest for digest, _ in results if digest)
    if skipped:
        kept = np.array([i for i, (digest, _) in enumerate(results) if digest])
        samples, store = samples.select(kept), _compacted(store, kept)
    return PixelImages(samples, preprocess, hashes, skipped, workers, store)


def _open_tensors(
    samples: Samples, source: TensorSource, preprocess: Preprocess, workers: int, progress: Progress
) -> TensorImages:
    if preprocess.views != "none":
        raise LQFError(f"views {preprocess.views!r} need pictures; normalised tensors go in unchanged")
    return TensorImages(samples, tuple(read_all(lambda i: sha256(source.raw(i)), len(samples), workers, progress)))


def read_all(
    read: Callable[[int], T], n: int, workers: int, progress: Progress, what: str = "reading images"
) -> list[T]:
    """``read`` of every image in turn, by some threads."""
    results = []
    with progress.stage(what, total=n, unit="images") as stage:
        for result in in_order(read, range(n), workers):
            results.append(result)
            stage.advance()
    return results


def _room(n: int, side: int, memory_bytes: int | None) -> np.ndarray | None:
    """(N, 3, R, R) to be filled, or None where that is too much."""
    limit = available_ram() // 2 if memory_bytes is None else memory_bytes
    return np.empty((n, 3, side, side), np.uint8) if n * 3 * side * side <= limit else None


def _compacted(store: np.ndarray | None, kept: np.ndarray) -> np.ndarray | None:
    """The rows that are kept, moved to the front: a copy would need the memory twice."""
    if store is None:
        return None
    for new, old in enumerate(kept):
        if new != old:
            store[new] = store[old]
    return store[: len(kept)]


def check_skipped(samples: Samples, skipped: Skipped, strict: bool) -> None:
    """Refuse skipped images where asked to, and always where none is left."""
    if skipped and (strict or len(skipped) == len(samples)):
        shown = "; ".join(f"`{id}` {reason}" for id, reason in skipped[:10])
        more = f"; and {len(skipped) - 10} more" if len(skipped) > 10 else ""
        what = f"{len(skipped)} of {counted(len(samples), 'image')} in {samples.name} cannot be used"
        raise LQFError(f"{what}: {shown}{more}")
