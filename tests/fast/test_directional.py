"""Predictions of many inputs take another way to the same z and J·δ."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lqf.backbones.activations import LeakyReLU6
from lqf.fast import directional as module
from lqf.fast.directional import captured, directional
from lqf.linear.linearize import Linearization

X = torch.randn(6, 3, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def network(last: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    block = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), LeakyReLU6()]
    depthwise = [nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(0.01)]
    net = nn.Sequential(*block, *depthwise, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last).double().eval()
    for norm in (net[1], net[4]):
        assert isinstance(norm, nn.BatchNorm2d)
        norm.running_mean.uniform_(-0.3, 0.3)  # type: ignore[union-attr]
        norm.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    return net


def drawn(exact: Linearization) -> torch.Tensor:
    return torch.randn(exact.size, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("order", [torch.channels_last, torch.contiguous_format], ids=str)
def test_a_captured_network_gives_values_and_derivatives(order: torch.memory_format) -> None:
    exact = Linearization(network(nn.Linear(8, 4)))
    delta = drawn(exact)
    along = captured(exact, delta, X[:2], order, lambda x: exact.jvp(x, delta))
    assert along is not None
    for some in (X, X[:1]):
        for got, wanted in zip(along(some), exact.jvp(some, delta), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_many_inputs_are_captured_and_few_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    exact, seen = Linearization(network(nn.Linear(8, 4))), []
    delta = drawn(exact)
    monkeypatch.setattr(module, "captured", lambda *given: seen.append(given))
    monkeypatch.setattr(module, "PAYS", 100 * X[0].numel())
    for rows in (99, 100):
        z, dz = directional(exact, delta, X[:2], rows)(X)
        torch.testing.assert_close(dz, exact.jvp(X, delta)[1], rtol=1e-12, atol=1e-12)
        assert len(seen) == (rows == 100)


class Unknown(nn.Module):
    """An operation without a rule."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(1)


class Deciding(nn.Module):
    """A way that depends on values, which no capture follows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize("last", [Unknown(), Deciding()], ids=lambda m: type(m).__name__)
def test_what_cannot_be_captured_is_left(last: nn.Module) -> None:
    exact = Linearization(network(last))
    assert captured(exact, drawn(exact), X[:2], torch.contiguous_format, lambda x: (x, x)) is None


def test_a_capture_that_gives_something_else_is_left() -> None:
    exact = Linearization(network(nn.Linear(8, 4)))
    delta = drawn(exact)
    other = captured(exact, delta, X[:2], torch.channels_last, lambda x: exact.jvp(x, 2 * delta))
    assert other is None
