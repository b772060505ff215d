"""Rows of the problem: every image in each of its fixed views, delivered to the device in batches.

Row i·V + v is view v of sample i. With a frozen prefix (weights before the first linearised stage) the rows are the
prefix's activations, computed once and kept in memory when they fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy

import torch
from torch import Tensor, nn

from lqf.data import Images, Preprocess, normalize
from lqf.memory import available_bytes
from lqf.progress import SILENT, Progress


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
    ):
        self.images, self.preprocess, self.prefix = images, preprocess, prefix
        self.device, self.dtype, self.batch_size = device, dtype, batch_size
        self.samples = torch.arange(len(images)) if samples is None else samples
        self._cache: Tensor | None = None
        self._on_device: Tensor | None = None

    def __len__(self) -> int:
        return len(self.samples) * self.n_views

    def take(self, samples: Tensor) -> Inputs:
        """The rows of some samples only; what is cached stays shared."""
        other = copy(self)
        other.samples = self.samples[samples]
        return other

    @property
    def n_views(self) -> int:
        """V, the number of fixed views of every image."""
        return self.images.n_views

    def fetch(self, rows: Tensor) -> Tensor:
        """Network inputs of these rows (all of one view, or any mixture)."""
        rows = rows.cpu()
        own = self.samples[rows // self.n_views] * self.n_views + rows % self.n_views  # row numbers over all images
        if self._cache is not None:
            return self._cache[own].to(self.device, non_blocking=True)
        if self._on_device is not None:
            x = self._on_device[own.to(self.device, non_blocking=True)]
        else:
            x = self._pixels(own).to(self.device, non_blocking=True)
        return self._through_prefix(normalize(x, self.preprocess, self.dtype))

    def augmented(self, rows: Tensor, scheme: str, generator: torch.Generator) -> Tensor:
        """Randomly augmented inputs of the rows' samples."""
        x = self.images.augmented(self.samples[rows.cpu() // self.n_views], scheme, generator)
        return self._through_prefix(normalize(x.to(self.device), self.preprocess, self.dtype))

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(row numbers on the device, inputs) over all rows, each row once."""
        per_batch = max(1, self.batch_size // self.n_views)
        for index in torch.arange(len(self.samples)).split(per_batch):
            rows = (index[:, None] * self.n_views + torch.arange(self.n_views)).flatten()
            yield rows.to(self.device), self.fetch(rows)

    def example(self, rows: int = 2) -> Tensor:
        """A few rows, for looking at shapes and timing."""
        return self.fetch(torch.arange(min(rows, len(self))))

    def cache_prefix(self, budget: int | None = None, progress: Progress = SILENT) -> bool:
        """Keep the frozen prefix's activations if they fit into ``budget`` bytes (default: half of what is free)."""
        if self.prefix is None:
            return False
        one, whole = self.example(1), copy(self)
        whole.samples = torch.arange(len(self.images))  # rows are looked up by their number over all images
        budget = available_bytes(torch.device("cpu")) // 2 if budget is None else budget
        if one.numel() * one.element_size() * len(whole) > budget:
            return False
        cache = torch.empty((len(whole), *one.shape[1:]), dtype=self.dtype)
        with progress.stage("frozen prefix", total=len(whole), unit="rows") as stage:
            for rows, x in whole.batches():
                cache[rows.cpu()] = x.cpu()
                stage.advance(len(rows))
        self._cache = cache
        return True

    def keep_on_device(self, budget: int | None = None) -> bool:
        """Keep the pixels of all rows on the GPU if they fit into ``budget`` bytes (default: a quarter of its memory).

        A fast pass takes less time than copying its images there.
        """
        if self.device.type != "cuda" or self._cache is not None:
            return False
        rows, one = len(self.images) * self.n_views, self._pixels(torch.arange(1))
        budget = available_bytes(self.device) // 4 if budget is None else budget
        if rows * one.numel() * one.element_size() > budget:
            return False
        self._on_device = one.new_empty((rows, *one.shape[1:]), device=self.device)
        for part in torch.arange(rows).split(1024):
            self._on_device[part.to(self.device)] = self._pixels(part).to(self.device)
        return True

    def _pixels(self, rows: Tensor) -> Tensor:
        sample, view = rows // self.n_views, rows % self.n_views
        if self.n_views == 1:
            return self.images.batch(sample, 0)
        out: Tensor | None = None
        for v in range(self.n_views):
            mine = view == v
            if bool(mine.any()):
                part = self.images.batch(sample[mine], v)
                out = part.new_empty((len(rows), *part.shape[1:])) if out is None else out
                out[mine] = part
        assert out is not None
        return out

    def _through_prefix(self, x: Tensor) -> Tensor:
        if self.prefix is None:
            return x
        with torch.no_grad():
            return self.prefix(x)
