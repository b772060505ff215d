"""Folds: whole groups of rows, every class spread evenly over them."""

from __future__ import annotations

import torch
from torch import Tensor

FOLDS = 5
"""Of every fit, shared by all its models."""
JUDGED = 600
"""Samples whose out-of-sample outputs judge a rung: refits are made without as many folds as hold so many."""


def folds_needed(fold: Tensor, enough: int) -> int:
    """So many of the folds hold ``enough`` rows."""
    seen = torch.bincount(fold).cumsum(0)
    return min(len(seen), int((seen < enough).sum()) + 1)


def stratified_folds(groups: Tensor, labels: Tensor, *, folds: int = FOLDS, seed: int = 0) -> Tensor:
    """(n,) fold of every row: whole groups, each class dealt out evenly in random order.

    At most ``folds``, and no more than the typical class has groups: with more, a fold would lack some classes, and
    which of the heads a row uses would give away its label.
    """
    groups, labels = groups.cpu(), labels.cpu()
    unique, member = torch.unique(groups, return_inverse=True)
    first = torch.full((len(unique),), len(groups)).scatter_reduce(0, member, torch.arange(len(groups)), "amin")
    of_group = labels[first]
    order = torch.randperm(len(unique), generator=torch.Generator().manual_seed(seed))
    order = order[torch.argsort(of_group[order], stable=True)]
    fold = torch.empty(len(unique), dtype=torch.long)
    per_class = torch.unique(of_group, return_counts=True)[1]
    fold[order] = torch.arange(len(unique)) % max(2, min(folds, int(per_class.median())))
    return fold[member]
