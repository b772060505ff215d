"""Small networks in float64, one per kind of layer; every test of the mathematics runs on all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lqf.backbones import load_backbone
from lqf.linear.linearize import Linearization


class Residual(nn.Module):
    """x + block(x)."""

    def __init__(self, *block: nn.Module):
        super().__init__()
        self.block = nn.Sequential(*block)

    def forward(self, x: Tensor) -> Tensor:
        """Skip connection."""
        return x + self.block(x)


class Scale(nn.Module):
    """A learned factor per channel, a weight that no curvature rule knows (layer scale)."""

    def __init__(self, channels: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """γ·x."""
        return self.gamma * x


class Tokens(nn.Module):
    """Patches plus a learned position, attention written out, a mean over tokens."""

    def __init__(self, dim: int = 6, tokens: int = 4):
        super().__init__()
        self.embed = nn.Conv2d(2, dim, 3, stride=3)
        self.position = nn.Parameter(torch.randn(1, tokens, dim))
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """One attention block."""
        t = self.embed(x).flatten(2).mT + self.position
        q, k, v = self.qkv(self.norm(t)).chunk(3, -1)
        t = t + self.out(torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v)
        return t.mean(1)


def mlp() -> nn.Module:
    """Two linear layers on vectors."""
    return nn.Sequential(nn.Flatten(), nn.Linear(72, 5), nn.Tanh(), nn.Linear(5, 4))


def convnet() -> nn.Module:
    """Strides, padding, dilation, groups, depthwise, BN, leaky activation, residual, pooling."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.LeakyReLU(0.01),
        Residual(nn.Conv2d(4, 4, 3, padding="same", groups=2), nn.LeakyReLU(0.01), nn.Conv2d(4, 4, 1, bias=False)),
        nn.Conv2d(4, 4, (1, 3), padding=(0, 2), dilation=2, groups=4),
        nn.GroupNorm(2, 4),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def scaled() -> nn.Module:
    """A weight without a rule between convolutions."""
    return nn.Sequential(nn.Conv2d(2, 3, 3), Scale(3), nn.Tanh(), nn.Conv2d(3, 3, 2), nn.Flatten(), nn.Linear(27, 4))


def shared() -> nn.Module:
    """The same layer called twice."""
    layer = nn.Linear(5, 5)
    return nn.Sequential(nn.Flatten(), nn.Linear(72, 5), layer, nn.Tanh(), layer)


CASES: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "convnet": convnet,
    "scaled": scaled,
    "attention": Tokens,
    "shared": shared,
}


def network(name: str) -> nn.Module:
    """The network in float64, eval mode, with running statistics that are not trivial."""
    torch.manual_seed(len(name))
    net = CASES[name]().double().eval()
    return with_statistics(net).requires_grad_(False)


def with_statistics(net: nn.Module, spread: float = 1.0) -> nn.Module:
    """Batch normalisation that shows: running statistics, scales and shifts that are not trivial."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, spread)
            module.running_var.uniform_(0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, spread)
    return net


def built_in(name: str) -> tuple[Linearization, Tensor, Tensor]:
    """A built-in network with random weights in float64, two images, and a small vector of its weights' size."""
    exact = Linearization(load_backbone(name, weights="random").body.double())
    return exact, torch.randn(2, 3, 64, 64).double(), 1e-2 * torch.randn(exact.size).double()


def images(n: int = 7, seed: int = 0) -> Tensor:
    """(n, 2, 6, 6) inputs."""
    return torch.randn(n, 2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


every_network = pytest.mark.parametrize("name", list(CASES))
