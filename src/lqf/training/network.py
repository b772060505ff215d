"""A network under an ordinary linear head: what non-linear fine-tuning trains and gives back."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess
from lqf.runtime.precision import matmul_precision


class Network(nn.Module):
    """Pixels (uint8, or floating-point inputs as they are) -> class scores (B, C)."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone, preprocess: Preprocess, n_classes: int):
        super().__init__()
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(getattr(preprocess, name))[:, None, None])
        self.body = copy.deepcopy(backbone.body).float().requires_grad_()
        self.head = nn.Linear(backbone.features, n_classes)
        nn.init.normal_(self.head.weight, std=0.01)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, body, head."""
        if x.dtype == torch.uint8:
            x = (x.float() / 255 - self.mean) / self.std
        return self.head(self.body(x.float()))

    def training_mode(self, bn: str) -> None:
        """Train mode; with ``bn`` "eval", batch normalisation keeps its running statistics."""
        self.train()
        for module in self.modules():
            if isinstance(module, _BatchNorm):
                module.train(bn == "train")


@dataclass(frozen=True)
class FineTuned:
    """A fine-tuned network.

    Attributes:
        network: in eval mode, on its device.
        losses: mean training loss of every epoch.
        seconds: from the call of `fit` until the device was done; compilation and moving the images included.
        precision: of the passes.
        errors: share of wrong predictions of every epoch, while it ran.
    """

    network: Network
    losses: tuple[float, ...]
    seconds: float
    precision: str
    errors: tuple[float, ...] = ()

    @property
    def diverged(self) -> bool:
        """Whether a loss was not a number."""
        return not all(math.isfinite(loss) for loss in self.losses)

    def outputs(self, images: Images, batch_size: int = 128) -> Tensor:
        """Class scores (N, C) of the central views, on the CPU."""
        device = self.network.mean.device
        with torch.no_grad(), plain_float32(), autocast(device, self.precision):
            parts = [
                self.network(placed(images.batch(rows), device)).float().cpu()
                for rows in torch.arange(len(images)).split(batch_size)
            ]
        return torch.cat(parts)

    def predict(self, images: Images) -> Tensor:
        """(N,) predicted classes, as indices."""
        return self.outputs(images).argmax(1)

    def error(self, images: Images) -> float:
        """Share of wrong predictions."""
        labels = torch.tensor(images.samples.labels)
        return float((self.predict(images) != labels).double().mean())


@contextmanager
def plain_float32() -> Iterator[None]:
    """What is not bf16 is float32 without TF32; cuDNN searches for its fastest kernels, since all batches are alike."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        with matmul_precision(fast=False):
            yield
    finally:
        torch.backends.cudnn.benchmark = before


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Around one forward pass only: until it is left, it keeps the weights it has cast and sees no update of them."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def placed(x: Tensor, device: torch.device) -> Tensor:
    """Pixels where and as the network wants them."""
    layout = torch.channels_last if device.type == "cuda" and x.ndim == 4 else torch.contiguous_format
    return x.to(device, memory_format=layout)
