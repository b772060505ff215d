"""Labels as regression targets, outputs as decisions.

With more than two classes t = α·onehot(y), one output per class. Two classes need one output, t = ±α/2: the second
column of the one-hot problem is its mirror image.
"""

from __future__ import annotations

import torch
from torch import Tensor


def n_outputs(n_classes: int) -> int:
    """C: one output per class, one in all for two classes."""
    return 1 if n_classes == 2 else n_classes


def encode(labels: Tensor, n_classes: int, alpha: float) -> Tensor:
    """t (N, C) in float64 for labels (N,) from 0 to n_classes − 1."""
    if n_classes == 2:
        return alpha * (labels.double()[:, None] - 0.5)
    return alpha * torch.nn.functional.one_hot(labels.long(), n_classes).double()


def centre(n_classes: int, alpha: float) -> float:
    """The constant c of the centred form: the mean target under equal class frequencies, whatever the labels are."""
    return 0.0 if n_classes == 2 else alpha / n_classes


def class_scores(outputs: Tensor, alpha: float) -> Tensor:
    """Outputs (N, C) as one score per class (N, n_classes); with one output, the scores are α/2 ∓ f."""
    if outputs.shape[1] == 1:
        return alpha / 2 + torch.cat([-outputs, outputs], 1)
    return outputs


def decide(outputs: Tensor) -> Tensor:
    """The predicted class of every row (N,)."""
    return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)


def logits(outputs: Tensor) -> Tensor:
    """Outputs as logits of all classes (N, n_classes), up to a temperature."""
    return torch.cat([torch.zeros_like(outputs), outputs], 1) if outputs.shape[1] == 1 else outputs


def error_rate(outputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> float:
    """Share of wrong decisions, weighted."""
    wrong = (decide(outputs) != labels.to(outputs.device)).double()
    if weights is None:
        return float(wrong.mean())
    w = weights.to(wrong)
    return float((w * wrong).sum() / w.sum())
