"""The head at the linearisation point of the paper's linear methods."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lqf.data import Images
from lqf.fitting.select_ridge import Choice, Judge, choose_ridge
from lqf.solvers.head import Head

HeadKind = Literal["random", "probe", "zero"]


def make_head(
    kind: str, features: Tensor | None, images: Images, p: int, alpha: float, seed: int, std: float | None = None
) -> Tensor:
    """W̃ (C, p+1), bias last.

    "random" has entries of standard deviation ``std`` (None: 1/√p, as linear layers are initialised, up to a constant)
    and no bias;
    "probe" is the closed-form head of all images at the ridge strength that leave-one-out chooses.
    """
    c = len(images.samples.classes)
    if kind == "zero":
        return torch.zeros(c, p + 1)
    if kind == "random":
        w = torch.randn(c, p + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        w *= p**-0.5 if std is None else std
        w[:, -1] = 0
        return w
    assert features is not None
    head, choice = ridge_head(features, images, alpha)
    return head.solve(choice.mu)


def ridge_head(
    features: Tensor, images: Images, alpha: float, weight_decay: float | None = None
) -> tuple[Head, Choice]:
    """The closed-form head on features (N, p), t = α·onehot(y), with the ridge strength that leave-one-out chooses.

    Args:
        features: of all images.
        images: labels and weights.
        alpha: scale of the targets.
        weight_decay: λ = μ/N instead of leave-one-out's choice.
    """
    samples = images.samples
    labels = torch.tensor(samples.labels)
    weights = torch.tensor(samples.weights, dtype=torch.float64, device=features.device)
    targets = alpha * torch.nn.functional.one_hot(labels, len(samples.classes)).double().to(features.device)
    head = Head.of(features, targets, weights, torch.arange(len(labels)))
    judge = Judge(targets, labels, weights.cpu(), 1)
    fixed = None if weight_decay is None else [weight_decay * float(weights.sum())]
    return head, choose_ridge(lambda _: head.ridge, head.residual, judge, [1.0], fixed)
