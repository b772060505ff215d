"""Images of many processes: each decodes and holds its own part, and all know the whole table."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from lqf.data.images import Images, check_skipped, open_images
from lqf.data.pixels import Skipped
from lqf.data.preprocess import Preprocess
from lqf.data.samples import Index, Samples, positions
from lqf.errors import LQFError
from lqf.runtime.distributed import World
from lqf.runtime.memory import available_ram, cores
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import counted


@dataclass(eq=False)
class Shard:
    """The table of all samples, and the pixels of ``own``, which are consecutive."""

    samples: Samples
    hashes: tuple[str, ...]
    skipped: Skipped
    own: range
    local: Images = field(repr=False)

    @property
    def n_views(self) -> int:
        return self.local.n_views

    def __len__(self) -> int:
        return len(self.samples)

    def batch(self, index: Index, view: int = 0) -> Tensor:
        return self.local.batch(self._local(index), view)

    def whole(self, index: Index) -> Tensor:
        return self.local.whole(self._local(index))

    def _local(self, index: Index) -> np.ndarray:
        rows = positions(index, len(self)) - self.own.start
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self.own)):
            raise IndexError(f"this process has the samples {self.own}, not all of {index}")
        return rows


@dataclass(eq=False)
class Gathered:
    """Views of some samples as tensors (N, V, …), from all processes."""

    samples: Samples
    hashes: tuple[str, ...]
    views: Tensor = field(repr=False)
    skipped: Skipped = ()

    @property
    def own(self) -> range:
        return range(len(self))

    @property
    def n_views(self) -> int:
        return self.views.shape[1]

    def __len__(self) -> int:
        return len(self.views)

    def batch(self, index: Index, view: int = 0) -> Tensor:
        return self.views[torch.from_numpy(positions(index, len(self))), view]

    def whole(self, index: Index) -> Tensor:
        raise LQFError("random views are drawn by one process; start it without torchrun")


def open_shard(
    samples: Samples, preprocess: Preprocess, world: World, *, strict: bool = False, progress: Progress = SILENT
) -> Images:
    """`open_images` of this process's share; hashes and damaged images of all shares are known to all."""
    if world.size == 1:
        return open_images(samples, preprocess, strict=strict, progress=progress)
    check_enough(samples, world)
    local = world.together(
        lambda: open_images(
            samples.select(np.array(world.share(len(samples)))),
            preprocess,
            workers=cores() // world.local_size,
            memory_bytes=available_ram() // (2 * world.local_size),
            progress=progress,
        )
    )
    parts = world.all_gather({"hashes": local.hashes, "skipped": local.skipped})
    skipped = tuple((id, reason) for part in parts for id, reason in part["skipped"])
    check_skipped(samples, skipped, strict)
    lost = {id for id, _ in skipped}
    kept = samples.select(np.array([id not in lost for id in samples.ids]))
    start = sum(len(part["hashes"]) for part in parts[: world.rank])
    hashes = tuple(digest for part in parts for digest in part["hashes"])
    return Shard(kept, hashes, skipped, range(start, start + len(local)), local)


def check_enough(samples: Samples, world: World) -> None:
    """Refuse where a process would have no sample."""
    if len(samples) < world.size:
        raise LQFError(f"{world.size} processes share {counted(len(samples), 'image')}; start fewer processes")


def gather_images(images: Images, chosen: Tensor, world: World, at_once: int = 512) -> Gathered:
    """The chosen samples (N,) in all their views, on every process."""
    one = images.batch([images.own.start])
    views = one.new_zeros(len(chosen), images.n_views, *one.shape[1:])
    mine = held(images, chosen)
    for part in mine.split(at_once) if len(mine) else ():
        for v in range(images.n_views):
            views[part, v] = images.batch(chosen[part], v)
    for piece in views.split(at_once):
        world.all_reduce_(piece)
    return Gathered(images.samples.select(chosen), tuple(images.hashes[i] for i in chosen.tolist()), views)


def held(images: Images, samples: Tensor) -> Tensor:
    """Positions in ``samples`` of those whose pixels this process has."""
    return ((samples >= images.own.start) & (samples < images.own.stop)).nonzero()[:, 0]
