"""Pictures whose contents are known and whose pixels nobody has asked for yet.

A question about a fitted model often needs no pixels of its training images. That these are still the images of the fit
is checked by their hashes at once, which takes a small part of the time of decoding them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lqf.data.decode import Unreadable, sha256
from lqf.data.images import Images, check_skipped, open_images, read_all
from lqf.data.joined import join_samples
from lqf.data.parts import preprocess_of
from lqf.data.pixels import PixelImages, TensorImages
from lqf.data.preprocess import Preprocess
from lqf.data.samples import Index, Samples, positions
from lqf.data.shards import Shard, check_enough
from lqf.data.sources import TensorSource
from lqf.errors import LQFError
from lqf.runtime.distributed import World
from lqf.runtime.memory import cores
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import counted, listed

FEW = 16
"""So many are decoded by themselves; where more are asked for, all of them are, once."""


@dataclass(eq=False)
class Pixels:
    """The pixels of all of some pictures, decoded when they are first needed and shared by all views of them."""

    samples: Samples
    preprocess: Preprocess
    progress: Progress
    opened: Images | None = None

    def store(self) -> np.ndarray | None:
        """(N, 3, R, R); None where they do not fit into memory."""
        if self.opened is None:
            self.opened = open_images(self.samples, self.preprocess, strict=True, progress=self.progress)
        assert isinstance(self.opened, PixelImages)
        return self.opened.store


@dataclass(eq=False)
class UnreadImages(PixelImages):
    """Pictures with known hashes; ``pixels`` has what is read later."""

    pixels: Pixels = field(repr=False)

    def _resized(self, index: Index) -> np.ndarray:
        rows = positions(index, len(self))
        if self.pixels.opened is None and len(rows) <= FEW:
            return super()._resized(rows)
        store = self.pixels.store()
        return super()._resized(rows) if store is None else store[rows]


def open_known(
    samples: Samples, preprocess: Preprocess, hashes: Sequence[str], *, progress: Progress = SILENT
) -> Images:
    """Images that were opened before, when they had these hashes; their pixels are read when they are asked for.

    Raises:
        LQFError: naming the images that are missing or have changed.
    """
    if isinstance(samples.source, TensorSource):
        images = open_images(samples, preprocess, strict=True, progress=progress)
        _check(samples, images.hashes, hashes)
        return images

    def digest(i: int) -> tuple[str, str]:
        try:
            return sha256(samples.source.raw(i)), ""
        except Unreadable as e:
            return "", str(e)

    found = read_all(digest, len(samples), cores(), progress, "checking images")
    check_skipped(samples, tuple((samples.ids[i], why) for i, (_, why) in enumerate(found) if why), strict=True)
    _check(samples, [digest for digest, _ in found], hashes)
    return UnreadImages(samples, preprocess, tuple(hashes), (), cores(), None, Pixels(samples, preprocess, progress))


def open_known_shard(
    samples: Samples, preprocess: Preprocess, hashes: Sequence[str], world: World, *, progress: Progress = SILENT
) -> Images:
    """`open_known` of this process's share: each process checks its own images."""
    if world.size == 1:
        return open_known(samples, preprocess, hashes, progress=progress)
    check_enough(samples, world)
    own = world.share(len(samples))
    part, known = samples.select(np.array(own)), hashes[own.start : own.stop]
    local = world.together(lambda: open_known(part, preprocess, known, progress=progress))
    return Shard(samples, tuple(hashes), (), own, local)


def _check(samples: Samples, found: Sequence[str], expected: Sequence[str]) -> None:
    changed = [i for i, a, b in zip(samples.ids, found, expected, strict=True) if a != b]
    if changed:
        raise LQFError(
            f"{counted(len(changed), 'image')} of {samples.name} changed since the model was fitted: "
            f"{listed(changed)}; restore them, or fit again"
        )


def join_images(first: Images, second: Images) -> Images:
    """The images of both, one after the other; nothing is read again before it is asked for."""
    samples, hashes = join_samples(first.samples, second.samples), first.hashes + second.hashes
    preprocess = preprocess_of(first)
    if preprocess is None:
        return TensorImages(samples, hashes)
    return UnreadImages(samples, preprocess, hashes, (), cores(), None, Pixels(samples, preprocess, SILENT))
