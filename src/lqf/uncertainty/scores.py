"""How badly a class suits an image, by the model's outputs: what conformal sets compare.

With p = softmax(βf), sorted p₍₁₎ ≥ p₍₂₎ ≥ …,

    probability   E(x, y) = −log p_y: the smallest sets on average,
    margin        E(x, y) = max_{k≠y} f_k − f_y: needs no temperature,
    adaptive      E(x, y) = Σ_{k: p_k ≥ p_y} p_k: large sets for hard images, small ones for easy images.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lqf.linear.targets import logits

Score = Callable[[Tensor], Tensor]
"""Outputs (…, C) -> E of every class (…, n_classes)."""
NAMES = ("probability", "margin", "adaptive")


def score(name: str, beta: float) -> Score:
    """One of `NAMES`, at an inverse temperature."""
    by_name = {"probability": _probability, "margin": _margin, "adaptive": _adaptive}
    return lambda outputs: by_name[name](_logits(beta * outputs.double()))


def _logits(outputs: Tensor) -> Tensor:
    return logits(outputs.flatten(0, -2)).view(*outputs.shape[:-1], -1)


def _probability(f: Tensor) -> Tensor:
    return -torch.log_softmax(f, -1)


def _margin(f: Tensor) -> Tensor:
    best, second = f.topk(2, -1).values.unbind(-1)
    return torch.where(f == best[..., None], second[..., None], best[..., None]) - f


def _adaptive(f: Tensor) -> Tensor:
    p, order = torch.softmax(f, -1).sort(dim=-1, descending=True, stable=True)
    return torch.empty_like(p).scatter_(-1, order, p.cumsum(-1))
