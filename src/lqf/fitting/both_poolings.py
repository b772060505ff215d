"""Two kinds of features under one head, z = (z₁, scale·z₂), and how much the second kind counts.

Two heads with a ridge strength each, μ₁ = μ and μ₂ = μ/scale², are one head on z. Its kernel is

    z̃z̃ᵀ = z̃₁z̃₁ᵀ + scale² z₂z₂ᵀ,     scale² = share · tr(z₁z₁ᵀ) / tr(z₂z₂ᵀ),

and the share is the one of `SHARES` whose exact leave-one-out outputs have the lowest cross-entropy, each at its own
best ridge strength and temperature: one factorisation per share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.fitting.encoder import Encoder
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.select_ridge import choose_ridge, given_ridge
from lqf.fitting.training_set import TrainingSet
from lqf.kernels.ridge import KernelRidge
from lqf.linear import head_products
from lqf.linear.model import with_one

SHARES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Of the second kind in the kernel's trace, over the first kind's."""
PRIOR_SHARE = 3.0
"""Where nothing can be left out. Of average and bilinear features at 224 px 3 has the lowest cross-entropy on images
held out; with 1 and 10 it is higher by 0.01, with 0.3 by 0.03. Small images, whose last maps have few positions, want
less of it: at 96 px 1 is lower by 0.02 (`benchmarks/results/both_poolings-*.json`)."""
MOST_SAMPLES = 1000
"""Where there are more, so many random ones choose the share."""


@dataclass(frozen=True, eq=False)
class Half:
    """Features of one kind.

    Attributes:
        features: z (n, p).
        gram: z̃z̃ᵀ (n, n), where it is known.
    """

    features: Tensor
    gram: Tensor | None = None

    @classmethod
    def of(cls, features: Tensor, kernel: bool) -> Half:
        """With its kernel, or without."""
        return cls(features, head_products.gram(features) if kernel else None)

    @cached_property
    def trace(self) -> float:
        """tr(zzᵀ)."""
        return float(torch.linalg.vector_norm(self.features, dim=1).double().square().sum())

    def some(self, rows: Tensor, kernel: bool) -> Half:
        """Of the rows in a mask (n,) alone, with their kernel where it is asked for."""
        z, rows = self.features[rows], rows.nonzero()[:, 0]
        if not kernel or self.gram is None:
            return Half.of(z, kernel)
        return Half(z, self.gram[rows[:, None], rows])


@dataclass(frozen=True, eq=False)
class Pair:
    """Both kinds of features of the same rows."""

    first: Half
    second: Half

    @property
    def width(self) -> int:
        """p₁ + p₂."""
        return self.first.features.shape[1] + self.second.features.shape[1]

    def scale(self, share: float) -> float:
        """With which the second kind has this share."""
        one, two = self.first.trace, self.second.trace
        return float((share * one / max(two, 1e-30 * one, 1e-300)) ** 0.5)

    def features(self, scale: float) -> Tensor:
        """z (n, p₁ + p₂)."""
        return torch.cat([self.first.features, scale * self.second.features], 1)

    def gram(self, scale: float) -> Tensor | None:
        """z̃z̃ᵀ (n, n), where those of both kinds are known."""
        if self.first.gram is None or self.second.gram is None:
            return None
        return self.first.gram + scale**2 * (self.second.gram - 1)

    def some(self, rows: Tensor) -> Pair:
        """Of the rows in a mask (n,) alone, with their kernels where these are smaller than z̃ᵀz̃."""
        kernel = int(rows.sum()) <= self.width + 1
        return Pair(self.first.some(rows, kernel), self.second.some(rows, kernel))

    def ridge(self, scale: float, data: TrainingSet) -> KernelRidge:
        """The smaller of z̃z̃ᵀ and z̃ᵀz̃ over the rows of a training set, factorised."""
        gram = self.gram(scale) if len(self.first.features) <= self.width + 1 else None
        groups = data.groups.to(data.context.device)
        if gram is None:
            return KernelRidge.from_features(with_one(self.features(scale)), data.weights, groups)
        return KernelRidge.from_kernel(gram, data.weights, groups)


def head_of_both(encoder: Encoder, pooling: str, pair: Pair, pooled: Callable[[float], Backbone]) -> HeadFit:
    """The head on both kinds of features, with the share that is best.

    Args:
        encoder: of one kind.
        pooling: name of the two together.
        pair: the features.
        pooled: scale -> the network that makes them.
    """
    context = encoder.context
    with context.timed("head"):
        scale = context.world.agree(pair.scale(choose_share(pair, encoder.data)))
    return HeadFit.of(encoder.with_backbone(pooled(scale)), pooling, pair.features(scale), gram=pair.gram(scale))


def choose_share(pair: Pair, data: TrainingSet) -> float:
    """By leave-one-out, the same on every process; `PRIOR_SHARE` where nothing can be left out."""
    chosen = _chosen(len(data), data.context.settings.seed)
    part = data if chosen.all() else data.some(chosen)
    if part.alone:
        return PRIOR_SHARE

    def best() -> float:
        rows = torch.from_numpy(chosen).repeat_interleave(data.n_views).to(data.context.device)
        own = pair if part is data else pair.some(rows)
        return min(SHARES, key=lambda share: _loss(own, pair.scale(share), part))

    return float(data.context.world.first(best))


def _chosen(n: int, seed: int) -> np.ndarray:
    """(n,) which samples choose the share."""
    out = np.zeros(n, dtype=bool)
    out[np.random.default_rng(seed).permutation(n)[:MOST_SAMPLES]] = True
    return out


def _loss(pair: Pair, scale: float, data: TrainingSet) -> float:
    """Leave-one-out cross-entropy at the best ridge strength, or at the one that is given."""
    ridge, given = pair.ridge(scale, data), given_ridge(data.context.settings, data.total_weight)
    return choose_ridge(lambda _: ridge, data.targets - data.constant, data.judge, [1.0], given).best.loss
