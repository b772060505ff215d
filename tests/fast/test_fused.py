"""Both products from one pass of the primal equal the exact ones, and the primal runs once."""

import pytest
import torch
from torch import nn

from cases import built_in, every_network, images, network
from closeness import ROUNDING, relative
from lqf.fast.fused import FusedLinearization
from lqf.linear.linearize import Linearization


@every_network
@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_both_products_agree(name: str, dtype: torch.dtype, merges: bool) -> None:
    exact = Linearization(network(name))
    fast = FusedLinearization(exact, dtype, images(2), merges=merges)
    x, v = images(6), torch.randn(exact.size, dtype=torch.float64)
    (dz, pulled), expected = (body.fused(x, v, lambda z, dz: dz - z) for body in (fast, exact))
    assert relative(dz, expected[0]) < ROUNDING[dtype]
    assert relative(pulled, expected[1]) < ROUNDING[dtype]
    assert dz.dtype == pulled.dtype == torch.float64
    assert not dz.requires_grad
    assert not pulled.requires_grad


@pytest.mark.parametrize("name", ["resnet50", "efficientnet_lite0"])
def test_merged_passes_of_the_built_in_networks_are_exact(name: str) -> None:
    exact, x, v = built_in(name)
    fast = FusedLinearization(exact, torch.float64, x, merges=True)
    assert fast.merged > 0
    got, expected = (body.fused(x, v, lambda z, dz: z + dz) for body in (fast, exact))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9 * float(b.abs().max()))


def test_the_primal_runs_once() -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double().eval()
    x = torch.randn(3, 4).double()
    fast = FusedLinearization(Linearization(net), torch.float64, x)
    calls: list[int] = []
    fast.module.register_forward_hook(lambda *_: calls.append(0))
    fast.fused(x, torch.randn(fast.size).double(), lambda z, dz: dz)
    assert calls == [0]
