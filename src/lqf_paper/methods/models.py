"""A trained linear model, and what every method gives back."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
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
from lqf_paper.runner.predictions import packed


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


@dataclass(frozen=True)
class Predicted:
    """The classes that a model predicts for some images; None where its training diverged.

    Attributes:
        central: (N,) from the central views, or from those that the model has chosen.
        mirrored: (N,) from scores averaged over them and their mirror images; None too where they were not asked for.
    """

    central: np.ndarray | None
    mirrored: np.ndarray | None = None

    @classmethod
    def of(cls, model: Model, images: Images, *, mirrored: bool) -> Predicted:
        """What a model predicts."""
        outputs = scores(model, images)
        if outputs is None:
            return cls(None)
        more = scores(model, Mirrored.of(images)) if mirrored else None
        return cls(outputs.argmax(1).numpy(), None if more is None else (outputs + more).argmax(1).numpy())

    def result(self, images: Images) -> dict[str, Any]:
        """Errors, and the classes themselves as text."""
        labels, named = images.samples.labels, {"": self.central, "_mirrored": self.mirrored}
        errors = {f"test_error{k}": None if c is None else float((c != labels).mean()) for k, c in named.items()}
        return errors | {f"predictions{k}": packed(c) for k, c in named.items() if c is not None}
