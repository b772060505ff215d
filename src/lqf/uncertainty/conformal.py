"""Conformal p-values of every class, from what models without each training sample say.

With f₋ᵢ the model without sample i (or without all of its group), E_i = E(x_i, y_i; f₋ᵢ), and U samples or groups,

    p(x, y) = (1 + Σ_i w_i [E_i ≥ E(x, y; f₋ᵢ)]) / (1 + Σ_i w_i),       set at coverage c:  {y: p(x, y) > 1 − c}.

This is jackknife+ for classes (Romano, Sesia and Candès 2020): an image that is exchangeable with the training samples
is covered with probability 2c − 1 at least, and c in practice. With min_j E(x, y; f₋ⱼ) in place of E(x, y; f₋ᵢ) it is
jackknife-minmax, which covers with c at least; with the model of all samples, E(x, y; f), it is the jackknife, which
promises nothing and needs nothing but the leave-one-out scores.

A group counts as one sample: w_i = 1/|S_i| (Lee, Barber and Willett 2023). By class, only samples of class y speak
about y, and coverage holds within every class.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lqf.analysis.units import Units

_ENTRIES = 1 << 24
"""Comparisons that are held at a time."""


def voices(units: Units, labels: Tensor, n_classes: int, known: Tensor, *, by_class: bool) -> Tensor:
    """(N, n_classes) w_i: how much every training sample counts where a class is judged; a unit counts as one.

    Args:
        units: who leaves together.
        labels: (N,).
        n_classes: number of classes.
        known: (N,) of which samples E_i is known.
        by_class: only samples of the class speak about it.
    """
    speaks = known.double()[:, None].expand(-1, n_classes)
    if by_class:
        speaks = speaks * torch.nn.functional.one_hot(labels.long(), n_classes)
    size = units.add_up(speaks)[units.member]
    return speaks / size.clamp_min(1)


def p_values(own: Tensor, scores: Tensor, member: Tensor, weights: Tensor) -> Tensor:
    """(Q, n_classes) p.

    Args:
        own: (N,) E_i.
        scores: (U, Q, n_classes) E(x, y; f₋S) for every unit, or (1, Q, n_classes) where it is the same for all.
        member: (N,) the unit of every sample.
        weights: (N, n_classes) w.
    """
    counted = scores.new_ones(scores.shape[1:])
    own, member = own.to(scores), member if len(scores) > 1 else torch.zeros_like(member)
    for some in torch.arange(len(own)).split(max(1, _ENTRIES // max(1, scores[0].numel()))):
        at_least = own[some, None, None] >= scores[member[some]]
        counted += (at_least * weights[some, None].to(scores)).sum(0)
    return counted / (1 + weights.sum(0).to(scores))


def smallest_p(weights: Tensor) -> Tensor:
    """(n_classes,) 1/(1 + Σw): a class is never ruled out at coverages above 1 − this."""
    return 1 / (1 + weights.sum(0))
