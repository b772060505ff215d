"""A trained linear model, and what every method gives back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from lqf.data import Images, Preprocess
from lqf.fast.fused import FusedLinearization
from lqf.linear.inputs import Inputs
from lqf.linear.linearize import Linearization
from lqf.linear.model import LinearModel
from lqf.linear.sweep import sweep
from lqf.runtime.precision import matmul_precision
from lqf.training.network import autocast, plain_float32
from lqf_paper.methods.mirrored import Mirrored
from lqf_paper.runner.predictions import packed

Precision = Literal["float32", "tf32", "bf16"]


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
        precision: of the products, as in training.
        report: JSON values: how P was damped, and what of the spectrum it preconditions.
    """

    model: LinearModel
    delta: Tensor
    encode: Linearization | None
    preprocess: Preprocess
    losses: tuple[float, ...]
    seconds: float
    precision: Precision = "float32"
    report: dict[str, Any] = field(default_factory=dict)

    def outputs(self, images: Images, batch_size: int = 64) -> Tensor:
        """Class scores (N, C) of the central views, on the CPU; by the products of the training."""
        inputs = Inputs(
            images, self.preprocess, device=self.delta.device, dtype=self.delta.dtype, batch_size=batch_size
        )
        model, encode = self.model, self.encode
        if encode is None:
            model = replace(model, body=quick(model.body, self.precision, inputs.example()))

        def apply(_: Tensor, x: Tensor) -> Tensor:
            z, jd = model.jvp(x if encode is None else encoded(encode, x, self.precision), self.delta)
            return model.base(z) + jd

        with products(self.precision):
            return sweep(inputs.batches(), len(inputs), apply, collect=torch.device("cpu"))


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Around passes: TF32 where that is the precision, float32 without it elsewhere."""
    with plain_float32(), matmul_precision(fast=precision == "tf32"):
        yield


def quick(body: Linearization, precision: str, example: Tensor) -> FusedLinearization:
    """The passes of training and of test: in bfloat16, or in the type of ``example``."""
    return FusedLinearization(body, torch.bfloat16 if precision == "bf16" else example.dtype, example)


def encoded(body: Linearization, x: Tensor, precision: str) -> Tensor:
    """Features (B, p) for a head alone."""
    with autocast(x.device, precision):
        return body.value(x).to(x.dtype)


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
