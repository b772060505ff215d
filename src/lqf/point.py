"""The head at the linearisation point: it decides in which directions the body can move the outputs.

With a zero head the body's Jacobian is zero and nothing but the head would be learned. The choices:

- ``random``: blind to the labels, so that leave-one-out is unbiased as it stands.
- ``probe``: the closed-form head. Informative, but each training row's Jacobian has seen that row's own label.
- ``crossfit``: the rows are cut into folds; every row is linearised around the closed-form head of the *other* folds.
  As informative as the probe, and a row's Jacobian has not seen its label. Predictions use the mean of these heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lqf.solvers.head import Head

Kind = Literal["probe", "random", "crossfit"]


@dataclass(frozen=True)
class Point:
    """Heads at the linearisation point.

    Attributes:
        kind: how they were made.
        heads: (K, C, p+1).
        fold: (n,) the head that each training row uses.
    """

    kind: Kind
    heads: Tensor
    fold: Tensor


def random_point(head: Head, seed: int) -> Point:
    """One head with entries of standard deviation 1/√p, as linear layers are usually initialised (up to a constant)."""
    p = head.features.shape[1]
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(1, head.residual.shape[1], p + 1, generator=generator, dtype=torch.float64) / p**0.5
    w[..., -1] = 0
    return Point("random", w, torch.zeros(len(head.features), dtype=torch.long))


def probe_point(head: Head, mu: float) -> Point:
    """The closed-form head of all rows."""
    return Point("probe", head.solve(mu)[None], torch.zeros(len(head.features), dtype=torch.long))


def crossfit_point(head: Head, mu: float, fold: Tensor) -> Point:
    """One closed-form head per fold (see `stratified_folds`), made without it.

    μ shrinks with the weight that is left, so that the weight decay per sample stays the same.
    """
    heads = []
    for k in range(int(fold.max()) + 1):
        keep = (fold != k).to(head.features.device)
        share = float(head.weights[keep].sum() / head.weights.sum())
        heads.append(head.solve_some(keep, mu * share))
    return Point("crossfit", torch.stack(heads), fold)


def stratified_folds(groups: Tensor, labels: Tensor, *, folds: int = 5, seed: int = 0) -> Tensor:
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
