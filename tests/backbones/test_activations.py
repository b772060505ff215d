"""Leaky activations: values, derivatives in both modes, and the swap."""

import pytest
import torch
from torch import nn

from lqf.backbones import LeakyReLU6, make_leaky

X = torch.tensor([-3.0, -1e-3, 0.5, 5.9, 6.5, 20.0], dtype=torch.float64)


def test_leaky_relu6_leaks_on_both_sides():
    y = LeakyReLU6(0.01)(X)
    expected = torch.tensor([-0.03, -1e-5, 0.5, 5.9, 6.005, 6.14], dtype=torch.float64)
    assert torch.allclose(y, expected, rtol=0, atol=1e-14)


def test_leaky_relu6_equals_relu6_at_slope_zero_and_identity_at_one():
    assert torch.allclose(LeakyReLU6(0.0)(X), nn.ReLU6()(X))
    assert torch.allclose(LeakyReLU6(1.0)(X), X)


def test_leaky_relu6_keeps_small_values_in_bfloat16():
    x = torch.tensor([1e-3, -1e-3], dtype=torch.bfloat16)
    y = LeakyReLU6()(x)
    assert torch.allclose(y.float(), torch.tensor([1e-3, -1e-5]), rtol=2e-2)


def test_derivatives_agree_in_forward_and_reverse_mode_and_under_vmap():
    f, slopes = LeakyReLU6(0.01), torch.tensor([0.01, 0.01, 1, 1, 0.01, 0.01], dtype=torch.float64)
    _, forward = torch.func.jvp(f, (X,), (torch.ones_like(X),))
    reverse = torch.func.vmap(torch.func.grad(f))(X)
    assert torch.allclose(forward, slopes)
    assert torch.allclose(reverse, slopes)
    assert torch.autograd.gradcheck(f, (X.clone().requires_grad_(),))


def test_make_leaky_swaps_every_activation_wherever_it_is():
    shared = nn.ReLU(inplace=True)
    net = nn.Sequential(nn.Linear(2, 2), shared, nn.Sequential(nn.ReLU6(), shared), nn.GELU())
    assert make_leaky(net, 0.2) is net
    assert [type(m) for m in (net[1], net[2][0], net[2][1], net[3])] == [
        nn.LeakyReLU,
        LeakyReLU6,
        nn.LeakyReLU,
        nn.GELU,
    ]
    assert net[1].negative_slope == net[2][0].slope == 0.2
    assert not any(isinstance(m, nn.ReLU | nn.ReLU6) for m in net.modules())


@pytest.mark.parametrize(("given", "expected"), [(nn.ReLU(), nn.LeakyReLU), (nn.ReLU6(), LeakyReLU6)])
def test_make_leaky_of_an_activation_returns_its_replacement(given, expected):
    assert isinstance(make_leaky(given), expected)


def test_make_leaky_changes_the_result_by_the_leak_only():
    x, net = torch.linspace(-1, 1, 9), nn.Sequential(nn.ReLU())
    assert torch.allclose(make_leaky(net)(x), x.clamp(min=0) + 0.01 * x.clamp(max=0))
