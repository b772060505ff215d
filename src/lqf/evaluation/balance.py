"""Weights under which every class counts alike, however few images it has; and how many images weights are worth."""

from __future__ import annotations

import torch
from torch import Tensor


def class_factors(weights: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """(n_classes,) Σs / (K·Σ_k s), what the weights of every class are to be multiplied by for all K classes to weigh
    the same; zero for a class without weight, which is none of the K.

    With s = 1 this is scikit-learn's n / (K·n_k); the weights keep their sum.
    """
    weights = weights.double()
    totals = torch.bincount(labels, weights, minlength=n_classes)
    present = totals > 0
    return torch.where(present, weights.sum() / (present.sum() * totals), 0.0)


def balanced(weights: Tensor, labels: Tensor) -> Tensor:
    """(N,) the weights with the same sum in every class that has any, and the same sum in all."""
    return weights * class_factors(weights, labels, int(labels.max()) + 1)[labels] if len(labels) else weights


def judging_weights(choose_by: str, weights: Tensor, labels: Tensor) -> Tensor:
    """(N,) by which out-of-sample losses are averaged: the samples' own, or with `choose_by` "classes" `balanced`."""
    return balanced(weights, labels) if choose_by == "classes" else weights


def effective_number(weights: Tensor) -> float:
    """(Σw)²/Σw²: of so many samples that all count the same, a mean is as certain (Kish 1965)."""
    w = weights.double()
    return float(w.sum().square() / w.square().sum()) if bool(w.any()) else 0.0
