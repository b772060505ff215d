"""Weights of several models whose outputs are added up, by the cross-entropy of their out-of-sample outputs.

    f = Σ_k c_k f_k,     c = argmin Σ_i s_i CE(softmax f(x_i), y_i) + (τ/2) Σ_k (c_k/β_k − 1/K)²,     c_k ≥ 0,

which is convex. c_k is a model's weight times its inverse temperature; β_k is that which suits its outputs alone. The
prior, τ = `PRIOR`, is towards equal weights: what differs by less than a few samples' worth of evidence is averaged.
Left-out samples come from where the others come from, and an average of unlike models bears other images better.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from lqf.evaluation.calibration import calibrate
from lqf.linear.targets import logits

Problem = tuple[Tensor, Tensor, Tensor, float]
"""Scaled outputs (K, N, n_classes), one-hot targets, weights, and the prior's weight."""
STEPS = 200
PRIOR = 10.0
"""τ: all weight on one of three models costs as much as 3.3 in the sum of the losses."""
LEAST = 0.02
"""Share of the summed outputs below which a model is left out."""


def stack_coefficients(outputs: Sequence[Tensor], labels: Tensor, weights: Tensor, prior: float = PRIOR) -> Tensor:
    """(K,) c, in float64.

    Newton's method on the coefficients that are not held at zero by a positive slope.

    Args:
        outputs: K times (N, C), out of sample and known.
        labels: (N,).
        weights: (N,).
        prior: τ.
    """
    z = torch.stack([logits(o.double()) for o in outputs])  # (K, N, n_classes)
    w, tau = weights.double() / weights.sum(), prior / float(weights.sum())
    scale = z.square().mean((1, 2)).sqrt().clamp_min(1e-12)
    sized = [o.double() / s for o, s in zip(outputs, scale, strict=True)]
    scale = scale / torch.tensor([calibrate(o, labels, weights) for o in sized], dtype=torch.float64)
    z = z / scale[:, None, None]
    target = F.one_hot(labels.long(), z.shape[2]).double()
    c = torch.full((len(z),), 1.0 / len(z), dtype=torch.float64)
    problem = (z, target, w, tau)
    loss, slope, curvature = _derivatives(c, *problem)
    for _ in range(STEPS):
        free = (c > 0) | (slope < 0)
        if not bool(free.any()) or float(slope[free].abs().max()) < 1e-9:
            break
        step = torch.zeros_like(c)
        inner = curvature[free][:, free] + 1e-9 * torch.eye(int(free.sum()), dtype=c.dtype)
        step[free] = torch.linalg.solve(inner, slope[free])
        c, loss, slope, curvature, moved = _line_search(c, step, loss, problem)
        if not moved:
            break
    return c / scale


def shares(coefficients: Tensor, outputs: Sequence[Tensor]) -> Tensor:
    """(K,) each model's part of the summed outputs, by root mean square; they add up to 1."""
    sizes = torch.stack([logits(o.double()).square().mean().sqrt() for o in outputs])
    parts = coefficients * sizes
    return parts / parts.sum().clamp_min(1e-300)


def _line_search(c: Tensor, step: Tensor, loss: float, problem: Problem) -> tuple[Tensor, float, Tensor, Tensor, bool]:
    """c − t·step, projected, with the first t of 1, ½, … at which the loss falls."""
    length = 1.0
    while length > 1e-6:
        new = (c - length * step).clamp_min(0)
        found = _derivatives(new, *problem)
        if found[0] < loss - 1e-14:
            return new, *found, True
        length /= 2
    return c, *_derivatives(c, *problem), False


def _derivatives(c: Tensor, z: Tensor, target: Tensor, w: Tensor, prior: float) -> tuple[float, Tensor, Tensor]:
    """Loss, gradient (K,) and Hessian (K, K), in units in which every model's own inverse temperature is 1."""
    off = c - 1 / len(c)
    log_p = torch.log_softmax(torch.einsum("k,knc->nc", c, z), 1)
    p = log_p.exp()
    loss = -float((w[:, None] * target * log_p).sum())
    slope = torch.einsum("nc,knc->k", w[:, None] * (p - target), z)
    mean = torch.einsum("nc,knc->kn", p, z)
    second = torch.einsum("nc,jnc,knc->jk", w[:, None] * p, z, z) - torch.einsum("n,jn,kn->jk", w, mean, mean)
    own = 0.5 * prior * float(off.square().sum())
    return loss + own, slope + prior * off, second + prior * torch.eye(len(c), dtype=c.dtype)
