"""Value and derivative by ordinary operations are those of automatic differentiation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cases import every_network, images, network
from lqf.backbones.activations import LeakyReLU6
from lqf.backbones.bilinear_pool import BilinearPool
from lqf.backbones.both_pool import BothPool
from lqf.errors import LQFError
from lqf.fast.gates import leaky6, through_leaky6
from lqf.fast.two_streams import TwoStreams
from lqf.linear.linearize import Linearization


def compared(net: nn.Module, x: Tensor, names: list[str] | None = None, enough: float = 1e-9) -> TwoStreams:
    """The streams of a network with a random δ in some of its weights, and the same numbers both ways."""
    exact = Linearization(net, names)
    v = torch.randn(exact.size, dtype=x.dtype, generator=torch.Generator().manual_seed(1))
    streams = TwoStreams(net, exact.layout.views(v), x[:2])
    for part in (x, x[:1]):
        z, dz = exact.jvp(part, v)
        own = streams(part)
        torch.testing.assert_close(own[0], z, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(own[1], dz, rtol=enough, atol=enough)
    return streams


class Applied(nn.Module):
    """A function of a linear map's outputs, four of which reach it by several ways."""

    def __init__(self, function: object):
        super().__init__()
        self.first, self.function = nn.Conv2d(2, 4, 3, padding=1), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(2 * self.first(x)).flatten(1)  # type: ignore[operator]


FUNCTIONS = {
    "relu6": nn.functional.relu6,
    "hardswish": nn.Hardswish(),
    "hardsigmoid": nn.Hardsigmoid(),
    "hardtanh": lambda x: nn.functional.hardtanh(x, -1.5, 0.5),
    "clamp": lambda x: x.clamp(max=0.7).clamp_min(-1),
    "elu": nn.functional.elu,
    "gelu": nn.functional.gelu,
    "gelu, tanh": nn.GELU("tanh"),
    "mish": nn.functional.mish,
    "softplus": nn.functional.softplus,
    "sigmoid, tanh": lambda x: torch.sigmoid(x) * torch.tanh(x),
    "leaky": lambda x: nn.functional.leaky_relu(x, 0.2),
    "leaky to six": lambda x: LeakyReLU6(0.1)(4 * x),
    "relu": nn.functional.relu,
    "lerp": lambda x: torch.lerp(x, x * x, 0.3),
    "max pool": lambda x: nn.functional.max_pool2d(x, 3, 2, 1),
    "average pool": lambda x: nn.functional.avg_pool2d(x, 2),
    "softmax": lambda x: torch.softmax(x, 1),
    "fractions": lambda x: (1 - x) / (2 + x.square()) - x.exp().rsqrt() + (x * x + 1).sqrt().log(),
    "where": lambda x: torch.where(x > 0, x * x, 3.0),
    "parts": lambda x: torch.cat([a * b for a, b in zip(x.chunk(2, 1), x.split(2, 1), strict=True)][::-1], 1),
    "broadcast": lambda x: x * x.mean((2, 3), keepdim=True) + x[:, :1],
    "padded, rolled": lambda x: nn.functional.pad(x, (1, 2, 0, 1), value=2.0).roll(1, 2),
    "resized": lambda x: (
        nn.functional.interpolate(x, size=(5, 7), mode="bicubic", antialias=True)
        + nn.functional.interpolate(x, size=(5, 7), mode="bilinear", antialias=True)
    ),
    "resized, exactly": lambda x: (
        nn.functional.interpolate(x, size=(9, 4), mode="bicubic")
        * nn.functional.interpolate(x, size=(9, 4), mode="nearest-exact")
    ),
    "detached": lambda x: x * x.detach(),
}


@every_network
def test_every_kind_of_layer(name: str) -> None:
    compared(network(name), images(5))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_operation(name: str) -> None:
    torch.manual_seed(0)
    enough = 1e-6 if name.startswith("hards") else 1e-9  # PyTorch has 1/6 in float32 there
    compared(Applied(FUNCTIONS[name]).double().eval(), images(3), enough=enough)


@pytest.mark.parametrize("through", [True, False])
def test_bilinear_pooling_by_iteration(through: bool) -> None:
    torch.manual_seed(0)
    pool = BilinearPool(None, 3)
    net = nn.Sequential(nn.Conv2d(2, 3, 3), BothPool(pool, 0.5, through)).double().eval()
    pool.newton = True
    compared(net, images(3))


def test_batch_normalisation_is_absorbed() -> None:
    streams = compared(network("convnet"), images(4))
    assert not [n for n in streams.nodes.nodes if n.target is torch.ops.aten.batch_norm.default]


def test_some_weights_only() -> None:
    compared(network("convnet"), images(3), ["1.weight", "4.bias"])
    streams = compared(network("mlp"), images(3), [])
    assert not [name for name, _ in streams.named_buffers() if name.endswith("change")]


def test_an_operation_without_a_rule_is_named() -> None:
    net = Applied(lambda x: torch.cumsum(x, 1)).double().eval()
    exact = Linearization(net)
    streams = TwoStreams(net, exact.layout.views(torch.ones(exact.size).double()), images(2))
    with pytest.raises(LQFError, match=r"cumsum.*cannot be exported"):
        streams(images(2))


def test_leaky_activations_are_one_operation_each() -> None:
    """Also at the kinks, and in a graph that is written; another interpolation stays what it is."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), LeakyReLU6(), nn.Flatten()).double().eval()
    x = images(3)
    exact = Linearization(net)
    streams = TwoStreams(net, exact.layout.views(torch.ones(exact.size, dtype=x.dtype)), x[:2])
    assert [n.target for n in streams.nodes.nodes].count(leaky6) == 1
    assert not [n for n in streams.nodes.nodes if "lerp" in str(n.target)]
    at = torch.tensor([-3.0, -0.0, 0.0, 1e-300, 3.0, 6.0, 7.0], dtype=torch.float64)
    module = LeakyReLU6()
    value, change = torch.func.jvp(module, (at,), (torch.ones_like(at),))

    class Written(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return leaky6(x, 0.01), through_leaky6(torch.ones_like(x), x, 0.01)

    for got in (Written()(at), torch.export.export(Written(), (at,)).module()(at)):
        assert torch.equal(got[0], value)
        torch.testing.assert_close(got[1], change, rtol=0, atol=1e-16)
