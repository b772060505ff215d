"""Rows of the problem: every image in each of its fixed views, delivered to the device in batches.

Row i·V + v is view v of sample i. With a frozen prefix (weights before the first linearised stage) the rows are the
prefix's activations, computed once and kept in memory when they fit. Where many processes share the samples, each
delivers the rows of its own; row numbers count all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy

import torch
from torch import Tensor, nn

from lqf.data import Images, Preprocess, Shard, gather_images, held, normalize, rows_on
from lqf.data.crops import random_crops
from lqf.runtime.distributed import ALONE, World
from lqf.runtime.memory import available_bytes
from lqf.settings import begins_with
from lqf.utils.progress import SILENT, Progress

_AT_ONCE = 1024
"""Rows that are cut together where all are kept."""


class Inputs:
    """Batches of network inputs on a device.

    Args:
        images: decoded images, or tensors.
        preprocess: how pixels become network inputs.
        device: where the batches go.
        dtype: floating-point type of the batches.
        batch_size: rows per batch.
        prefix: the frozen part of the network; None when all of it is linearised.
        samples: which of the images; default all.
        world: the processes that share the images.
        tick: called before every batch, e.g. to give up when the time is up.
    """

    def __init__(
        self,
        images: Images,
        preprocess: Preprocess,
        *,
        device: torch.device,
        dtype: torch.dtype,
        batch_size: int,
        prefix: nn.Module | None = None,
        samples: Tensor | None = None,
        world: World = ALONE,
        tick: Callable[[], None] = lambda: None,
    ):
        self.images, self.preprocess, self.prefix = images, preprocess, prefix
        self.device, self.dtype, self.batch_size = device, dtype, batch_size
        self.samples = torch.arange(len(images)) if samples is None else samples
        self.world, self.tick = world, tick
        self._cache: Tensor | None = None  # of the rows that this process delivers
        self._on_device: Tensor | None = None  # the same
        self._held: list[tuple[Tensor, Tensor]] = []

    def __len__(self) -> int:
        return len(self.samples) * self.n_views

    def take(self, samples: Tensor) -> Inputs:
        """The rows of some samples only; what is cached stays shared."""
        other = self._copied()
        other.samples = self.samples[samples]
        return other

    def in_batches(self, rows: int) -> Inputs:
        """The same rows, so many at a time; what is cached stays shared."""
        other = self._copied()
        other.batch_size = rows
        return other

    def showing(self, images: Images, preprocess: Preprocess) -> Inputs:
        """Other images, on the same way to the network: prefix, device, type and rows per batch.

        Those of which every process has all are delivered by every process.
        """
        return Inputs(
            images,
            preprocess,
            device=self.device,
            dtype=self.dtype,
            batch_size=self.batch_size,
            prefix=self.prefix,
            world=self.world if isinstance(images, Shard) else ALONE,
            tick=self.tick,
        )

    def in_views(self, images: Images, preprocess: Preprocess, progress: Progress = SILENT) -> Inputs:
        """The same images in other views; where the first of these are those shown here and the prefix is cached, only
        the others pass through it.
        """
        other = self.showing(images, preprocess)
        if self._cache is not None and begins_with(preprocess.views, self.preprocess.views):
            other.cache_prefix(progress=progress, known=self)
        else:
            other.cache_prefix(progress=progress)
        other.keep_on_device()
        return other

    def keep(self, progress: Progress = SILENT) -> None:
        """Keep what every pass would compute or copy again, as far as it fits."""
        if self._cache is None and self._on_device is None:
            self.cache_prefix(progress=progress)
            self.keep_on_device()

    def gathered(self) -> Inputs:
        """The same rows, all of them delivered by every process: for kernels, where every row meets every other."""
        if self.world.size == 1:
            return self
        other = self._copied()
        other.images = gather_images(self.images, self.samples, self.world)
        other.samples, other.world = torch.arange(len(self.samples)), ALONE
        other._cache = other._on_device = None
        other.cache_prefix(other._cache_budget() // 2)
        return other

    def _copied(self) -> Inputs:
        """The same but for the batches that are held, which are those of this division into batches."""
        other = copy(self)
        other._held = []
        return other

    @property
    def own(self) -> Tensor:
        """The samples, by their position, whose rows this process delivers."""
        return held(self.images, self.samples)

    def among_own(self, rows: Tensor) -> Tensor:
        """Those of these rows that this process delivers."""
        if self.world.size == 1:
            return rows
        return rows[held(self.images, self.samples[rows.cpu() // self.n_views]).to(rows.device)]

    @property
    def own_rows(self) -> int:
        """Number of rows that this process delivers."""
        return len(self.own) * self.n_views

    @property
    def n_views(self) -> int:
        """V, the number of fixed views of every image."""
        return self.images.n_views

    def fetch(self, rows: Tensor) -> Tensor:
        """Network inputs of these rows (all of one view, or any mixture)."""
        rows = rows.cpu()
        return self._deliver(self.samples[rows // self.n_views] * self.n_views + rows % self.n_views)

    def _deliver(self, rows: Tensor) -> Tensor:
        """The same for row numbers over all images."""
        if self._cache is not None:
            return self._cache[(rows - self._first).to(self.device, non_blocking=True)]
        if self._on_device is not None:
            x = self._on_device[(rows - self._first).to(self.device, non_blocking=True)]
        else:
            x = self._pixels(rows)
        return self._through_prefix(normalize(x, self.preprocess, self.dtype))

    def augmented(self, rows: Tensor, scheme: str, generator: torch.Generator) -> Tensor:
        """Randomly augmented inputs of the rows' samples."""
        whole = self.images.whole(self.samples[rows.cpu() // self.n_views])
        x = random_crops(whole.to(self.device), scheme, self.preprocess.size, generator)
        return self._through_prefix(normalize(x, self.preprocess, self.dtype))

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(row numbers on the device, inputs) over all rows of this process, each row once."""
        for batch in self._held:
            self.tick()
            yield batch
        for rows in self.batch_rows()[len(self._held) :]:
            self.tick()
            yield rows.to(self.device), self.fetch(rows)

    def batches_of_view(self, view: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(samples by their position, inputs) of one view alone."""
        for index in self.own.split(self.batch_size):
            self.tick()
            yield index, self.fetch(index * self.n_views + view)

    def batch_rows(self) -> list[Tensor]:
        """The row numbers of `batches`."""
        per_batch, own, views = max(1, self.batch_size // self.n_views), self.own, torch.arange(self.n_views)
        return [
            (index[:, None] * self.n_views + views).flatten() for index in (own.split(per_batch) if len(own) else ())
        ]

    def hold(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        """Deliver these, the first of `batches`, as the very same tensors from now on."""
        self._held = batches

    @property
    def held_share(self) -> float:
        """The share of the rows that are held."""
        return sum(len(rows) for rows, _ in self._held) / max(1, self.own_rows)

    def example(self, rows: int = 2) -> Tensor:
        """A few rows of any samples, for looking at shapes and timing."""
        return self._deliver(self._first + torch.arange(min(rows, len(self.images.own) * self.n_views)))

    @property
    def _first(self) -> int:
        """The first row, over all images, that this process can deliver."""
        return self.images.own.start * self.n_views

    def cache_prefix(self, budget: int | None = None, progress: Progress = SILENT, known: Inputs | None = None) -> bool:
        """Keep the frozen prefix's activations on the device if they fit into ``budget`` bytes (default: half of what
        is free; on a GPU, whose memory the passes need, a quarter).

        Where they do not fit on a GPU, the prefix is computed again: copying its activations there for every pass takes
        longer than that. Rows are looked up by their number over all images, so those of all images this process has
        are kept. ``known``: the same images in the first of these views, whose activations are taken over.
        """
        if self.prefix is None:
            return False
        one, whole = self.example(1), self._copied()
        whole.samples, n = torch.arange(len(self.images)), len(self.images.own) * self.n_views
        budget = self._cache_budget() if budget is None else budget
        if one.numel() * one.element_size() * n > budget:
            return False
        cache = torch.empty((n, *one.shape[1:]), dtype=self.dtype, device=self.device)
        first = 0
        if known is not None and known._cache is not None:
            first = known.n_views
            cache.unflatten(0, (-1, self.n_views))[:, :first] = known._cache.unflatten(0, (-1, first))
        n -= n // self.n_views * first
        with progress.stage("frozen prefix", total=n, unit="rows") as stage:
            for rows, x in whole._rows_from_view(first):
                cache[rows.to(self.device) - self._first] = x
                stage.advance(len(rows))
        self._cache = cache
        return True

    def _cache_budget(self) -> int:
        free = available_bytes(self.device)
        return free // 4 if self.device.type == "cuda" else free // (2 * self.world.local_size)

    def _rows_from_view(self, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        """`batches`, or those rows that show later views."""
        if first == 0:
            yield from self.batches()
            return
        for view in range(first, self.n_views):
            for index, x in self.batches_of_view(view):
                yield index * self.n_views + view, x

    def keep_on_device(self, budget: int | None = None) -> bool:
        """Keep the pixels of all rows on the device if they fit into ``budget`` bytes (default: a quarter of what is
        free there).

        A fast pass on a GPU takes less time than copying its images there. On a CPU only drawn crops are kept, which
        would be cut out and resized again for every pass.
        """
        drawn = self.preprocess.drawn(self.n_views - 1)
        if self._cache is not None or (self.device.type != "cuda" and not drawn):
            return False
        own = self._first + torch.arange(len(self.images.own) * self.n_views)
        one = self._pixels(own[:1])
        budget = available_bytes(self.device) // 4 if budget is None else budget
        if len(own) * one.numel() * one.element_size() > budget:
            return False
        kept = one.new_empty((len(own), *one.shape[1:]))
        at_once = max(1, _AT_ONCE // self.n_views) * self.n_views  # whole samples, each of which is copied once
        for first in range(0, len(own), at_once):
            kept[first : first + at_once] = self._pixels(own[first : first + at_once])
        self._on_device = kept
        return True

    def _pixels(self, rows: Tensor) -> Tensor:
        """The rows on the device, before they are normalised."""
        return rows_on(self.device, self.images, rows // self.n_views, rows % self.n_views)

    def _through_prefix(self, x: Tensor) -> Tensor:
        if self.prefix is None:
            return x
        with torch.no_grad():
            return self.prefix(x)


def average_views(rows: Tensor, n_views: int, first: int | None = None) -> Tensor:
    """(N·V, …) -> (N, …), over all views or the first so many."""
    return rows.view(-1, n_views, *rows.shape[1:])[:, :first].mean(1)
