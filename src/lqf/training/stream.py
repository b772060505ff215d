"""The order of mini-batches, the same for every method: one stream of permutations, cut into equal batches."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from lqf.data.crops import Windows
from lqf.training.random_views import RandomViews


def steps(n: int, epochs: int, batch: int) -> int:
    """Number of batches; the last images, where they do not fill one, are left out."""
    return epochs * n // batch


def drawn(views: RandomViews, n: int, epochs: int, seed: int) -> tuple[Tensor, Windows | None]:
    """Row numbers (epochs·n,) in the order in which they are seen, and the windows of their views, on the device."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.cat([torch.randperm(n, generator=generator) for _ in range(epochs)])
    windows = views.draw(len(order), generator)
    return order.to(views.device), windows


def stream(views: RandomViews, n: int, epochs: int, batch: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(row numbers, pixels before normalisation) of every step, on the device; the next epoch follows on in a batch."""
    order, windows = drawn(views, n, epochs, seed)
    for at in range(0, len(order) - batch + 1, batch):
        here = slice(at, at + batch)
        yield order[here], views.batch(order[here], windows and windows[here])


def per_epoch(losses: Tensor, n: int, batch: int) -> tuple[float, ...]:
    """Mean loss of every epoch that has a step, from the losses of all steps, on the CPU."""
    epoch = torch.arange(len(losses)) * batch // n
    counts = torch.bincount(epoch)
    sums = torch.bincount(epoch, losses.double())
    return tuple((sums / counts)[counts > 0].tolist())
