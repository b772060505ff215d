"""Normalisation and activation as one map: derivatives, what is absorbed, and the GPU's kernels."""

import copy

import pytest
import torch
from torch import Tensor, nn

from closeness import assert_same_products
from lqf.backbones import load_backbone
from lqf.backbones.activations import LeakyReLU6
from lqf.backbones.blocks import Residual
from lqf.fast import FastLinearization
from lqf.fast.compile_ahead import launches
from lqf.fast.ops.norm import Act, NormAct, _tangent, _vjp, absorb, act_of, quicken
from lqf.fast.triton.norm import _kernels
from lqf.linear.linearize import Linearization
from needs import needs_triton

ACTS = [nn.Identity(), nn.ReLU(), nn.LeakyReLU(0.2), nn.ReLU6(), LeakyReLU6(0.1), nn.SiLU()]


def some_norm(channels: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    w, b, mean = (torch.randn(channels, dtype=dtype) for _ in range(3))
    return w, b, mean, torch.rand(channels, dtype=dtype) + 0.5


@pytest.mark.parametrize("shortcut", [False, True])
@pytest.mark.parametrize("module", ACTS, ids=lambda m: type(m).__name__)
def test_value_and_both_derivatives(module: nn.Module, shortcut: bool) -> None:
    act = act_of(module) or Act()
    w, b, mean, var = some_norm(3)
    x, skip = (3 * torch.randn(4, 3, 5, 5).double() for _ in range(2))
    args = [t.requires_grad_() for t in (x, w, b, *([skip] if shortcut else []))]

    def ours(x: Tensor, w: Tensor, b: Tensor, skip: Tensor | None = None) -> Tensor:
        return NormAct.apply(x, skip, w, b, mean, var, 1e-5, act, True)

    inner = torch.nn.functional.batch_norm(x, mean, var, w, b, False, 0.0, 1e-5)
    expected = module(inner + skip if shortcut else inner)
    torch.testing.assert_close(ours(*args), expected, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(ours, args, check_forward_ad=True)


class Used(nn.Module):
    """The value between normalisation and activation is used a second time, on request."""

    def __init__(self, twice: bool):
        super().__init__()
        self.conv, self.bn, self.act, self.twice = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.LeakyReLU(0.1), twice

    def forward(self, x: Tensor) -> Tensor:
        p = self.bn(self.conv(x))
        y = self.act(p)
        return (y + p if self.twice else y).mean((2, 3))


def randomised(module: nn.Module) -> nn.Module:
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d):
            for t in (m.weight.data, m.bias.data, m.running_mean):
                t.normal_()
            m.running_var.uniform_(0.5, 1.5)
    return module.double().eval()


@pytest.mark.parametrize("twice", [False, True])
def test_an_activation_is_absorbed_only_if_nothing_else_changes(twice: bool) -> None:
    net, x = randomised(Used(twice)), torch.randn(5, 3, 8, 8).double()
    before = net(x)
    assert absorb(net, quicken(net), x) == (0 if twice else 1)
    torch.testing.assert_close(net(x), before)


@pytest.mark.parametrize("act", ACTS[1:], ids=lambda m: type(m).__name__)
def test_products_with_absorbed_activations_are_exact(act: nn.Module) -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), act, nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.Tanh(), nn.Flatten()
    )
    exact = Linearization(randomised(net))
    x = torch.randn(4, 3, 8, 8).double()
    fast = FastLinearization(exact, torch.float64, x[:2], merges=True)
    v = torch.randn(exact.size).double()
    assert_same_products(fast, exact, x, v)
    torch.testing.assert_close(fast.value(x), exact.value(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2"])
def test_the_built_in_networks_are_absorbed_whole(name: str) -> None:
    body = load_backbone(name, weights="random").body.double()
    net, norms = copy.deepcopy(randomised(body)), []
    norms = quicken(net)
    x = torch.randn(2, 3, 64, 64).double()
    shortcuts = [m for m in net.modules() if type(m) is Residual and m.shortcut is not None]
    acts = [m for m in net.modules() if act_of(m) is not None]
    in_blocks = sum(m.act is not None for m in shortcuts)
    assert absorb(net, norms, x) == len(acts) - in_blocks + len(shortcuts)
    torch.testing.assert_close(net(x), body(x), rtol=1e-10, atol=1e-10)


@needs_triton
@pytest.mark.parametrize("shape", [(3, 24, 7, 5), (2, 130, 9, 9), (40, 12)], ids=str)
@pytest.mark.parametrize("kind", ["none", "leaky", "leaky6", "silu"])
@pytest.mark.parametrize("shortcut", [False, True])
def test_kernels_agree_with_plain_operations(kind: str, shape: tuple[int, ...], shortcut: bool) -> None:
    act, kernels = Act(kind, 0.1), _kernels()
    x, dx, g, skip, dskip = (3 * torch.randn(shape) for _ in range(5))
    if x.ndim == 4:
        x, dx, g, skip, dskip = (t.contiguous(memory_format=torch.channels_last) for t in (x, dx, g, skip, dskip))
    skip, dskip = (skip, dskip) if shortcut else (None, None)
    norm = (*some_norm(shape[1], torch.float32), 1e-5)
    plain = NormAct.forward(x, skip, *norm, act, False)
    torch.testing.assert_close(kernels.value(x, skip, norm, act), plain, rtol=1e-5, atol=1e-5)
    dw, db = torch.randn(shape[1]), torch.randn(shape[1])
    for moved in ((dx, dskip, dw, db), (None, dskip, dw, db), (dx, dskip, None, db), (dx, dskip, dw, None)):
        args = (x, skip, norm, act, *moved)
        torch.testing.assert_close(kernels.tangent(*args), _tangent(*args), rtol=1e-4, atol=1e-4)
    ours, theirs = kernels.vjp(x, skip, norm, act, g), _vjp(x, skip, norm, act, g)
    assert (ours[1] is None) == (theirs[1] is None) == (not shortcut)
    for one, other in zip(ours, theirs, strict=True):
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@needs_triton
def test_kernels_compiled_ahead_are_given_as_many_arguments_as_they_take() -> None:
    from lqf.fast.triton import norm_kernels

    given = list(launches(["leaky", "none"], [torch.float32, torch.float16]))
    assert len(given) == 8 * (2 + 2 + 1)
    for name, args in given:
        assert len(args) == len(getattr(norm_kernels, name).arg_names), name
