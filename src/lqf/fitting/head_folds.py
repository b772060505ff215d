"""The closed-form head out of sample, fold by fold: what it would say about a fold had it not seen it.

The folds are those of every other model of a fit, so that all can be compared on the same samples. Where the rows are
few, the ridge strength is chosen again without each fold, by leave-one-out of the others; where they are many, the
choice hardly depends on a fold and stays, and one factorisation gives all folds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.fitting.head_fit import PRIOR_STRENGTH, HeadFit
from lqf.fitting.select_ridge import choose_ridge, given_ridge
from lqf.kernels.ridge import KernelRidge
from lqf.linear import head_products

NESTED_ROWS = 1000
"""Rows up to which the strength is chosen again without each fold."""


@dataclass(frozen=True)
class HeadFolds:
    """A head without each fold.

    Attributes:
        rows: (N, V, C) outputs of every view of every sample by the head of the other folds, in float64 on the CPU.
        strengths: μ of the head without each fold.
    """

    rows: Tensor
    strengths: tuple[float, ...]

    @property
    def outputs(self) -> Tensor:
        """(N, C), averaged over the views."""
        return self.rows.mean(1)


def without_folds(head: HeadFit) -> HeadFolds:
    """The head without each fold."""
    data, folds = head.data, int(head.data.folds.max()) + 1
    given = given_ridge(head.context.settings, data.total_weight) is not None or data.alone
    with head.context.timed("head"):
        if given or len(head.features) > NESTED_ROWS:
            rows, strengths = _fixed(head), (head.choice.mu,) * folds
        else:
            rows, strengths = _chosen_again(head)
        return HeadFolds((data.constant + rows).unflatten(0, (-1, data.n_views)).double().cpu(), strengths)


def _fixed(head: HeadFit) -> Tensor:
    """(n, C) with the strength that was chosen."""
    ridge, mu, fold = head.head.ridge, head.choice.mu, head.data.folds
    by_fold = KernelRidge(ridge.q, ridge.lam, ridge.weights, fold)
    return head.head.residual - by_fold.loo(head.head.residual, mu)


def _chosen_again(head: HeadFit) -> tuple[Tensor, tuple[float, ...]]:
    """(n, C) with a strength chosen without the fold, and these."""
    data, whole = head.data, head.head
    fold = data.folds.to(whole.features.device)
    out, strengths = torch.zeros_like(whole.residual), []
    for k in range(int(fold.max()) + 1):
        keep = fold != k
        part = whole.among(keep)
        others = data.some((data.folds[:: data.n_views] != k).numpy())
        prior = [PRIOR_STRENGTH * part.ridge.scale] if others.alone else None  # of two images per class one is left
        mu = choose_ridge(lambda _, r=part.ridge: r, part.residual, others.judge, [1.0], prior).mu  # type: ignore[misc]
        out[~keep] = head_products.jvp(whole.features[~keep], part.solve(mu))
        strengths.append(mu)
    return out, tuple(strengths)
