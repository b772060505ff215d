"""Probabilities from out-of-sample outputs: one temperature, fitted on leave-one-out scores, no validation set."""

from __future__ import annotations

import torch
from torch import Tensor

from lqf.linear.targets import logits

_GRID = 10 ** torch.linspace(-2.5, 1.5, 81, dtype=torch.float64)


def log_loss(outputs: Tensor, labels: Tensor, beta: float, weights: Tensor | None = None) -> float:
    """Mean cross-entropy of softmax(β·f)."""
    losses = torch.nn.functional.cross_entropy(
        beta * logits(outputs.double()), labels.to(outputs.device), reduction="none"
    )
    return float(losses.mean() if weights is None else (weights.to(losses) * losses).sum() / weights.sum())


def fit_temperature(outputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> tuple[float, float]:
    """Inverse temperature β that minimises the cross-entropy of softmax(β·f), and that cross-entropy.

    A grid, then a parabola through its best three points in log β: the loss is convex in β, so this cannot miss.
    """
    losses = torch.tensor([log_loss(outputs, labels, float(b), weights) for b in _GRID], dtype=torch.float64)
    k = int(losses.argmin().clamp(1, len(_GRID) - 2))
    left, mid, right = losses[k - 1 : k + 2]
    bend = left - 2 * mid + right
    shift = float(0.5 * (left - right) / bend) if bend > 0 else 0.0
    beta = float(_GRID[k]) * 10 ** (max(-1.0, min(1.0, shift)) * 0.05)
    return beta, log_loss(outputs, labels, beta, weights)


def probabilities(outputs: Tensor, beta: float) -> Tensor:
    """softmax(β·f), (N, n_classes), in float64."""
    return torch.softmax(beta * logits(outputs.double()), 1)
