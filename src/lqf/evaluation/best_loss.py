"""The cross-entropy of outputs at their own best temperature, and its derivative by the outputs.

    L(f) = min_β (1/Σw) Σ w_i [log Σ_c exp(β f_ic) − β f_i,label],     ∂L/∂f = (β/Σw) w (p − onehot),

at the best β: what β itself gains by another f is of second order. L is convex in β, and Newton's method finds the
minimum to rounding, so that differences of L agree with the derivative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.evaluation.calibration import fit_temperature, log_loss
from lqf.linear.targets import logits

LEAST, MOST = 10**-2.5, 10**1.5
"""Inverse temperatures at which the search ends: outputs without a mistake want an infinite one."""
STEPS = 50


@dataclass(frozen=True)
class BestLoss:
    """Outputs judged by their labels.

    Attributes:
        value: L.
        beta: the best inverse temperature.
        slope: (N, C) ∂L/∂f, float64.
    """

    value: float
    beta: float
    slope: Tensor


def best_loss(outputs: Tensor, labels: Tensor, weights: Tensor) -> BestLoss:
    """Of outputs (N, C), one column for two classes; images of weight 0 do not count."""
    outputs, counts = outputs.double(), weights.to(outputs.device) > 0
    known, y = outputs[counts], labels.to(outputs.device)[counts]
    w = weights.to(outputs)[counts]
    beta = _refined(logits(known), y, w, fit_temperature(known, y, w)[0])
    scores = logits(known)
    p = torch.softmax(beta * scores, 1)
    gap = p.scatter_add(1, y[:, None], -torch.ones_like(p[:, :1])) * (beta * w / w.sum())[:, None]
    slope = torch.zeros_like(outputs)
    slope[counts] = gap[:, 1:] if outputs.shape[1] == 1 else gap
    return BestLoss(log_loss(known, y, beta, w), beta, slope)


def _refined(scores: Tensor, labels: Tensor, weights: Tensor, beta: float) -> float:
    """The minimiser, from one nearby: Newton's steps, bisection where they leave the range."""
    own, w = scores.gather(1, labels[:, None])[:, 0], weights / weights.sum()
    low, high = LEAST, MOST
    beta = min(max(beta, low), high)
    for _ in range(STEPS):
        p = torch.softmax(beta * scores, 1)
        mean = (p * scores).sum(1)
        first = float(w @ (mean - own))
        second = float(w @ ((p * scores.square()).sum(1) - mean.square()))
        low, high = (beta, high) if first < 0 else (low, beta)
        there = beta - first / second if second > 0 else math.inf
        if not low <= there <= high:
            there = (low + high) / 2
        if abs(there - beta) <= 1e-14 * beta:
            return there
        beta = there
    return beta
