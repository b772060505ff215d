"""The closed-form head on a training set's features: the first model of every fit, and where the body starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.backbones.average_pool import acting, acting_features
from lqf.errors import LQFError
from lqf.fitting.context import Context
from lqf.fitting.encoder import Encoder
from lqf.fitting.select_ridge import Choice, choose_ridge, given_ridge, unjudged
from lqf.fitting.sound import check_images_differ
from lqf.fitting.training_set import TrainingSet
from lqf.kernels.ridge import KernelRidge
from lqf.solvers.head import Head

PRIOR_STRENGTH = 1.0
"""Ridge strength, in units of the kernel's mean eigenvalue, where every class has one image. On tasks of 2 to 40
classes drawn from seven training sets no other power of ten had a lower mean error, or a lower cross-entropy at its own
best temperature, under any pooling, at 96 and at 224 px (`benchmarks/results/one_shot-*.json`)."""

Given = float | Callable[[float], float]
"""A ridge strength, or one for a kernel with this mean eigenvalue."""


@dataclass(frozen=True, eq=False)
class HeadFit:
    """Features under one pooling and one choice of views, with the head that is best on them.

    Attributes:
        encoder: makes the features.
        pooling: its name.
        features: (n, p) of all rows.
        head: the factorised head problem.
        choice: its ridge strength, by leave-one-out.
        choices: what was chosen automatically so far, for the report.
        one_view: the same without the mirror images, where they were chosen and not asked for.
        point: ridge strength of the head at the linearisation point, where it is given and not that of `acting`.
    """

    encoder: Encoder
    pooling: str
    features: Tensor
    head: Head
    choice: Choice
    choices: tuple[dict[str, Any], ...] = ()
    one_view: HeadFit | None = None
    point: Given | None = None

    @classmethod
    def of(cls, encoder: Encoder, pooling: str, features: Tensor, *, gram: Tensor | None = None) -> HeadFit:
        """Choose the ridge strength; one that the settings give is only evaluated. ``gram``: z̃z̃ᵀ, where it is known."""
        data, context = encoder.data, encoder.context
        with context.timed("head"):
            check_images_differ(features, data.images.samples, data.n_views)
            head = _head(encoder, features, gram)
            fixed = given_ridge(context.settings, data.total_weight)
            if fixed is None and data.alone:
                fixed = [PRIOR_STRENGTH * head.scale]
            choice = choose_ridge(lambda _: head.ridge, head.residual, data.judge, [1.0], fixed)
        return cls(encoder, pooling, features, head, choice)

    @classmethod
    def with_ridge(cls, encoder: Encoder, pooling: str, features: Tensor, ridge: Given) -> HeadFit:
        """With a ridge strength that is not judged: nothing is factorised before it is asked for."""
        head = _head(encoder, features, None)
        mu = encoder.context.world.agree(ridge(head.scale) if callable(ridge) else ridge)
        return cls(encoder, pooling, features, head, unjudged(mu, head.residual))

    @classmethod
    def at(cls, encoder: Encoder, pooling: str, point: Given) -> HeadFit:
        """With the features of a network that may have been moved, and the ridge strength of its head at the point."""
        features = encoder.features()
        if not bool(torch.isfinite(features).all()):
            raise LQFError(
                "the network's features are no longer finite after it was moved; "
                "give fewer steps (relinearize), or a larger body_weight_decay"
            )
        if acting_features(encoder.backbone) is None:
            return cls.with_ridge(encoder, pooling, features, point)
        return replace(cls.with_ridge(encoder, pooling, features, lambda scale: scale), point=point)

    @classmethod
    def known(cls, encoder: Encoder, pooling: str, features: Tensor, point: float, made: KernelRidge | None) -> HeadFit:
        """With features that were computed before, and the head factorised on them, where that was kept."""
        head = replace(_head(encoder, features, None), made=made)
        return cls(encoder, pooling, features, head, unjudged(point, head.residual), point=point)

    @cached_property
    def acting(self) -> HeadFit:
        """The head on those of the features that the network's weights act through: the average of both poolings, else
        all of them. The body is linearised under it.
        """
        own = acting_features(self.backbone)
        if own is None:
            return self
        encoder, features = self.encoder.with_backbone(acting(self.backbone)), self.features[:, :own]
        if self.point is None:
            return HeadFit.of(encoder, "avg", features)
        return HeadFit.with_ridge(encoder, "avg", features, self.point)

    @property
    def point_ridge(self) -> float:
        """Ridge strength of the head at the linearisation point."""
        return self.acting.choice.mu

    @property
    def data(self) -> TrainingSet:
        """The training set."""
        return self.encoder.data

    @property
    def backbone(self) -> Backbone:
        """The network, with its pooling."""
        return self.encoder.backbone

    @property
    def context(self) -> Context:
        """Of the fit."""
        return self.encoder.context


def _head(encoder: Encoder, features: Tensor, gram: Tensor | None) -> Head:
    data = encoder.data
    return Head.of(features, data.targets - data.constant, data.weights, data.groups.to(encoder.context.device), gram)
