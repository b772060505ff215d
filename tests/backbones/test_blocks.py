"""SAME padding against TensorFlow's definition, and the blocks under every transformation used downstream."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from adjoint import assert_adjoint
from lqf.backbones.activations import make_leaky
from lqf.backbones.blocks import PadSame, Residual, conv_bn, inverted_residual


def tensorflow_padding(n: int, k: int, s: int) -> tuple[int, int]:
    total = max((math.ceil(n / s) - 1) * s + k - n, 0)
    return total // 2, total - total // 2


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2), (2, 2), (7, 3), (4, 4)])
def test_pad_same_is_tensorflows(kernel, stride):
    for h, w in [(7, 8), (8, 7), (9, 12), (13, 5), (16, 16)]:
        x = torch.randn(2, 3, h, w)
        (top, bottom), (left, right) = tensorflow_padding(h, kernel, stride), tensorflow_padding(w, kernel, stride)
        padded = PadSame(kernel, stride)(x)
        assert torch.equal(padded, F.pad(x, (left, right, top, bottom)))
        assert nn.Conv2d(3, 1, kernel, stride)(padded).shape[2:] == (math.ceil(h / stride), math.ceil(w / stride))


def test_pad_same_takes_a_size_per_direction():
    x = torch.randn(1, 1, 8, 8)
    (top, bottom), (left, right) = tensorflow_padding(8, 3, 2), tensorflow_padding(8, 5, 1)
    padded = PadSame((3, 5), (2, 1))(x)
    assert padded.shape == (1, 1, 9, 12)
    assert torch.equal(padded, F.pad(x, (left, right, top, bottom)))


def test_pad_same_needs_a_kernel_at_least_as_large_as_the_stride():
    with pytest.raises(ValueError, match="kernel >= stride"):
        PadSame(1, 2)


def test_stride_one_needs_no_padding_module():
    assert [n for n, _ in conv_bn(3, 4, 5, 1, same=True).named_children()] == ["conv", "bn"]
    assert [n for n, _ in conv_bn(3, 4, 5, 2, same=True).named_children()] == ["pad", "conv", "bn"]
    x = torch.randn(1, 3, 9, 9)
    conv = conv_bn(3, 4, 5, 1, same=True).conv
    assert torch.allclose(conv(x), F.conv2d(F.pad(x, (2, 2, 2, 2)), conv.weight), atol=1e-5)


def test_convolutions_are_ordinary_modules():
    block = inverted_residual(4, 4, 5, 2, 6, same=True)
    assert all(type(m) is nn.Conv2d for m in block.modules() if isinstance(m, nn.Conv2d))


@pytest.mark.parametrize(("c_out", "stride", "skips"), [(4, 1, True), (4, 2, False), (6, 1, False)])
def test_inverted_residual_skips_only_where_shapes_agree(c_out, stride, skips):
    block = inverted_residual(4, c_out, 3, stride, 2).eval()
    x = torch.randn(1, 4, 6, 6)
    assert torch.allclose(block(x), block.branch(x) + x if skips else block.branch(x))


def small_net() -> nn.Sequential:
    net = nn.Sequential(
        conv_bn(3, 4, 3, 2, act=nn.ReLU6(), same=True),
        inverted_residual(4, 4, 5, 1, 2, same=True),
        inverted_residual(4, 6, 5, 2, 3, same=True),
        Residual(conv_bn(6, 6), nn.Identity(), nn.ReLU()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return make_leaky(net).double().eval().requires_grad_(False)


@pytest.mark.parametrize("size", [13, 16])
def test_transformations_agree(size):
    """Adjoint identity <u, Jv> = <Jᵀu, v>; samples one by one under vmap; the traced graph at any size."""
    net, x = small_net(), torch.randn(3, 3, size, size, dtype=torch.float64)
    z = assert_adjoint(net, x, rel=1e-12)
    one_by_one = torch.func.vmap(lambda xi: net(xi[None])[0])(x)
    assert torch.allclose(one_by_one, z, rtol=0, atol=1e-12)
    assert torch.allclose(fx.symbolic_trace(net)(x), z, rtol=0, atol=1e-12)


def test_blocks_compile_without_graph_breaks():
    net = small_net()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    for size in (13, 16):
        x = torch.randn(2, 3, size, size, dtype=torch.float64)
        assert torch.allclose(compiled(x), net(x), rtol=0, atol=1e-12)
