"""The error of everything that was chosen: choosing among models flatters the one that is kept.

Every candidate has outputs of all samples by models without their folds. For each fold the choice is made again by the
other folds alone, by the same rule, and what it would have chosen there speaks for the fold:

    error = share of samples that the model chosen without their fold gets wrong.

Models without a fold have seen four fifths of the samples, so the estimate is rather too high than too low.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from lqf.evaluation.paired import gain, mean_loss

Losses = Callable[[Tensor], Tensor]


def chosen(
    losses: Sequence[Tensor], heads: int, weights: Tensor, among: Tensor, doubts: Sequence[float] | None = None
) -> int:
    """Number of the candidate that is kept, judged by the samples ``among`` (N,) alone.

    Args:
        losses: (N,) of every candidate, in the order in which they were tried.
        heads: so many of the first are alternatives to each other, of which the best is taken.
        weights: (N,).
        among: (N,) bool.
        doubts: of every candidate (`lqf.evaluation.paired.Gain.counts`); default: none.
    """
    doubts = doubts or [0.0] * len(losses)
    best = min(range(heads), key=lambda i: mean_loss(losses[i][among], weights[among]))
    for i in range(heads, len(losses)):
        if gain(losses[best][among], losses[i][among], weights[among]).counts(doubts[i]):
            best = i
    return best


def choice_outputs(
    candidates: Mapping[str, Tensor],
    heads: int,
    losses: Losses,
    weights: Tensor,
    folds: Tensor,
    doubts: Mapping[str, float] | None = None,
) -> Tensor:
    """(N, C) outputs of every sample by the model that is chosen without its fold; NaN where that does not know it.

    Args:
        candidates: out-of-sample outputs (N, C) by name, in the order in which they were tried.
        heads: see `chosen`.
        losses: outputs -> (N,) losses.
        weights: (N,).
        folds: (N,).
        doubts: by name, where there are any.
    """
    outputs = list(candidates.values())
    found = [losses(o) for o in outputs]
    doubted = [(doubts or {}).get(name, 0.0) for name in candidates]
    out = torch.full_like(outputs[0], torch.nan)
    for k in folds.unique().tolist():
        here = folds == k
        out[here] = outputs[chosen(found, heads, weights, ~here, doubted)][here]
    return out
