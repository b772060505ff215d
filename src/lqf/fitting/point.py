"""The head at the linearisation point: it decides in which directions the body can move the outputs.

With a zero head the body's Jacobian is zero and nothing but the head would be learned. The choices:

- ``random``: blind to the labels, so that leave-one-out is unbiased as it stands.
- ``probe``: the closed-form head. Informative, but each training row's Jacobian has seen that row's own label.
- ``heavy``: the closed-form head under `HEAVY` times its ridge strength. A row's label reaches its own Jacobian by its
  leverage, which is small then.
- ``crossfit``: the rows are cut into folds; every row is linearised around the closed-form head of the *other* folds.
  As informative as the probe, and a row's Jacobian has not seen its label. Predictions use the mean of these heads.
- ``means``: the same with the directions of the class means (`class_means`) in place of the closed-form head.
- ``several``: the same with the mean of `SEVERAL` closed-form heads, each of a random half of the other folds' groups.

The scale of a head does not matter in the centred form: the body's ridge strength is chosen for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from lqf.fitting.folds import stratified_folds
from lqf.linear import head_products
from lqf.solvers.head import Head

__all__ = ["BLIND", "Kind", "Point", "blind_point", "crossfit_point", "make_point", "probe_point", "random_point"]

Kind = Literal["probe", "random", "crossfit", "heavy", "means", "several"]
BLIND: tuple[Kind, ...] = ("random", "crossfit", "means", "several")
"""Points that show no row its own label."""
HEAVY = 100.0
"""How many times its own ridge strength the head of ``heavy`` has."""
SEVERAL = 8
"""Heads that ``several`` averages per fold."""

Recipe = Callable[[Tensor], Tensor]
"""A mask (n,) of rows -> the head (C, p+1) that they make."""


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


def make_point(kind: str, head: Head, mu: float, fold: Tensor, seed: int = 0) -> Point:
    """The point of a ``kind``; one fold has no others to be fitted on, and its head is that of all rows.

    Args:
        kind: see above.
        head: features and targets of the rows.
        mu: the head's ridge strength.
        fold: (n,) of every row (`lqf.fitting.folds`).
        seed: of ``random`` and ``several``.
    """
    if kind == "random":
        return random_point(head, seed)
    if kind == "probe" or (kind == "crossfit" and int(fold.max()) == 0):
        return probe_point(head, mu)
    if kind == "heavy":
        return replace(probe_point(head, HEAVY * mu), kind="heavy")
    if kind == "means":
        return _crossfitted("means", lambda keep: class_means(head, keep), head, fold)
    if kind == "several":
        return _crossfitted("several", lambda keep: mean_of_halves(head, keep, mu, seed), head, fold)
    return crossfit_point(head, mu, fold)


def blind_point(point: Point, head: Head, mu: float, fold: Tensor) -> Point | None:
    """The cross-fitted counterpart of a point that has seen the rows' labels; None where it has not."""
    if point.kind in BLIND:
        return None
    return crossfit_point(head, HEAVY * mu if point.kind == "heavy" else mu, fold)


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


def no_point(of: Head) -> Point:
    """Of a head alone, around which nothing is linearised."""
    heads = torch.zeros(1, of.residual.shape[1], of.features.shape[1] + 1, dtype=torch.float64)
    return Point("probe", heads, torch.zeros(len(of.features), dtype=torch.long))


def crossfit_point(head: Head, mu: float, fold: Tensor) -> Point:
    """One closed-form head per fold, made without it."""
    return _crossfitted("crossfit", lambda keep: closed_form(head, keep, mu), head, fold)


def closed_form(head: Head, keep: Tensor, mu: float) -> Tensor:
    """The ridge head of some rows. μ shrinks with their weight: the weight decay per sample stays the same."""
    share = float(head.weights[keep].sum() / head.weights.sum())
    return head.solve_some(keep, mu * share)


def class_means(head: Head, keep: Tensor) -> Tensor:
    """Each class's mean feature minus the mean of all classes' means, at the scale that fits the targets best.

    w_c ∝ m_c − m̄ over the rows in ``keep``; with two classes and one output w ∝ m_1 − m_0. One factor and one offset
    per output are least squares. A class without rows there gets zero.
    """
    s = torch.where(keep, head.weights, 0).double().to(head.features.device)[:, None]
    r = head.residual.to(s)
    one = r.shape[1] == 1
    member = s * (torch.cat([r > 0, r <= 0], 1) if one else r == r.amax(1, keepdim=True))
    share = member / member.sum(0).clamp_min(torch.finfo(s.dtype).tiny)  # (n, classes): columns add up to 1, or to 0
    present = (share.sum(0) > 0).to(share)
    a = share[:, :1] - share[:, 1:] if one else present * (share - share.sum(1, keepdim=True) / present.sum())
    w = head_products.vjp(a, head.features)
    out = head_products.jvp(head.features, w)
    total = s.sum()
    centre, target = (s * out).sum(0) / total, (s * r).sum(0) / total
    scale = (s * (out - centre) * (r - target)).sum() / (s * (out - centre).square()).sum().clamp_min(1e-300)
    w = scale * w
    w[:, -1] += target - scale * centre
    return w


def mean_of_halves(head: Head, keep: Tensor, mu: float, seed: int) -> Tensor:
    """The mean of `SEVERAL` closed-form heads, each of a random half of the groups in ``keep``, every class halved."""
    rows = keep.nonzero()[:, 0].cpu()
    labels = head.residual[rows.to(head.residual.device)]
    labels = labels.argmax(1) if labels.shape[1] > 1 else (labels[:, 0] > 0).long()
    total = torch.zeros(())
    for draw in range(SEVERAL):
        half = stratified_folds(head.groups.cpu()[rows], labels, folds=2, seed=seed * SEVERAL + draw) == 0
        part = torch.zeros(len(keep), dtype=torch.bool)
        part[rows[half]] = True
        total = total.to(head.features.device) + closed_form(head, part.to(keep.device), mu) / SEVERAL
    return total


def _crossfitted(kind: Kind, recipe: Recipe, head: Head, fold: Tensor) -> Point:
    """One head per fold, made of the other folds; of all rows where there is but one fold."""
    folds = int(fold.max()) + 1
    masks = [fold != k for k in range(folds)] if folds > 1 else [fold == 0]
    return Point(kind, torch.stack([recipe(keep.to(head.features.device)) for keep in masks]), fold)
