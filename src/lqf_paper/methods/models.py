"""A trained linear model, and what every method gives back."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from lqf.data import Images, Preprocess
from lqf.fast import FastLinearization
from lqf.linear.inputs import Inputs
from lqf.linear.linearize import Linearization
from lqf.linear.model import LinearModel
from lqf.linear.sweep import sweep
from lqf.training.network import plain_float32
from lqf_paper.methods.mirrored import Mirrored


class Model(Protocol):
    """What every method gives back: `FineTuned`, `Trained`, …"""

    @property
    def losses(self) -> tuple[float, ...]:
        """Mean training loss of every epoch; empty for methods without epochs."""

    @property
    def seconds(self) -> float:
        """What the fit took."""

    def outputs(self, images: Images) -> Tensor:
        """Class scores (N, C) of the central views, on the CPU."""


@dataclass(frozen=True)
class Trained:
    """f(x) = W̃z̃ + Jδ with its trained δ.

    Attributes:
        model: the linear model.
        delta: (size,) δ.
        encode: what makes the model's inputs out of images, where it is a head alone; None: it takes the images.
        preprocess: pixels to inputs.
        losses: mean training loss of every epoch, without the penalty.
        seconds: of the fit.
    """

    model: LinearModel
    delta: Tensor
    encode: Linearization | None
    preprocess: Preprocess
    losses: tuple[float, ...]
    seconds: float

    def outputs(self, images: Images, batch_size: int = 64) -> Tensor:
        """Class scores (N, C) of the central views, on the CPU; in the floating-point type of δ."""
        inputs = Inputs(
            images, self.preprocess, device=self.delta.device, dtype=self.delta.dtype, batch_size=batch_size
        )
        model, encode = self.model, self.encode
        if encode is None:
            body = FastLinearization(model.body, self.delta.dtype, inputs.example(), recorded=False)
            model = replace(model, body=body)

        def apply(_: Tensor, x: Tensor) -> Tensor:
            z, jd = model.jvp(x if encode is None else encode.value(x), self.delta)
            return model.base(z) + jd

        with plain_float32():
            return sweep(inputs.batches(), len(inputs), apply, collect=torch.device("cpu"))


def scores(model: Model, images: Images) -> Tensor | None:
    """Class scores (N, C); None where they are not finite, or were not in training: it diverged."""
    if not all(math.isfinite(loss) for loss in model.losses):
        return None
    try:
        outputs = model.outputs(images)
    except torch.linalg.LinAlgError:  # the root of a covariance that is not finite
        return None
    return outputs if bool(torch.isfinite(outputs).all()) else None


def wrong(outputs: Tensor, images: Images) -> float:
    """Share of wrong predictions."""
    return float((outputs.argmax(1) != torch.tensor(images.samples.labels)).double().mean())


def error(model: Model, images: Images) -> float | None:
    """Share of wrong predictions; None where the training diverged."""
    outputs = scores(model, images)
    return None if outputs is None else wrong(outputs, images)


def both_errors(model: Model, images: Images) -> tuple[float | None, float | None]:
    """The error on the central views, and that of scores averaged over them and their mirror images."""
    outputs = scores(model, images)
    if outputs is None:
        return None, None
    mirrored = scores(model, Mirrored.of(images))
    return wrong(outputs, images), None if mirrored is None else wrong(outputs + mirrored, images)
