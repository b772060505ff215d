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
from lqf.fitting.select_ridge import Choice, choose_ridge, given_ridge
from lqf.fitting.training_set import TrainingSet
from lqf.kernels.ridge import KernelRidge
from lqf.solvers.head import Head

PRIOR_STRENGTH = 1.0
"""Ridge strength, in units of the kernel's mean eigenvalue, where every class has one image. On tasks of 2 to 40
classes drawn from seven training sets no other power of ten had a lower mean error, or a lower cross-entropy at its own
best temperature, under any pooling, at 96 and at 224 px (`benchmarks/results/one_shot-*.json`)."""


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
    point: float | Callable[[KernelRidge], float] | None = None

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        pooling: str,
        features: Tensor,
        ridge: float | Callable[[KernelRidge], float] | None = None,
        gram: Tensor | None = None,
    ) -> HeadFit:
        """Factorise, and choose the ridge strength; what was given, in the settings or here, is only evaluated.

        ``gram``: z̃z̃ᵀ (n, n), where it is known.
        """
        data, context = encoder.data, encoder.context
        with context.timed("head"):
            groups = data.groups.to(context.device)
            head = Head.of(features, data.targets - data.constant, data.weights, groups, gram)
            fixed = given_ridge(context.settings, data.total_weight)
            if fixed is None and data.alone:
                fixed = [PRIOR_STRENGTH * head.ridge.scale]
            if ridge is not None:
                fixed = [context.world.agree(ridge(head.ridge) if callable(ridge) else ridge)]
            choice = choose_ridge(lambda _: head.ridge, head.residual, data.judge, [1.0], fixed)
        return cls(encoder, pooling, features, head, choice)

    @classmethod
    def at(cls, encoder: Encoder, pooling: str, ridge: float | Callable[[KernelRidge], float]) -> HeadFit:
        """With the features of a network that may have been moved; the ridge strength is that of the head at the point."""
        features = encoder.features()
        if not bool(torch.isfinite(features).all()):
            raise LQFError(
                "the network's features are no longer finite after it was moved; "
                "give fewer steps (relinearize), or a larger body_weight_decay"
            )
        if acting_features(encoder.backbone) is None:
            return cls.of(encoder, pooling, features, ridge)
        head = cls.of(encoder, pooling, features, lambda kernel: kernel.scale)  # whatever the problem's own will be
        return replace(head, point=ridge)

    @cached_property
    def acting(self) -> HeadFit:
        """The head on those of the features that the network's weights act through: the average of both poolings, else
        all of them. The body is linearised under it.
        """
        own = acting_features(self.backbone)
        if own is None:
            return self
        encoder = self.encoder.with_backbone(acting(self.backbone))
        return HeadFit.of(encoder, "avg", self.features[:, :own], self.point)

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
