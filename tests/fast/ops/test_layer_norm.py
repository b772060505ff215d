"""Layer normalisation and linear layers with derivatives of their own, wherever a network calls them."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from closeness import assert_same_products, relative
from lqf.fast import FastLinearization
from lqf.fast.ops.layer_norm import LayerNorm, _tangent
from lqf.fast.ops.pointwise import Pointwise
from lqf.fast.triton.norm import _kernels
from lqf.linear.linearize import Linearization
from needs import needs_triton


@pytest.mark.parametrize("shape", [(5,), (3, 5)], ids=str)
@pytest.mark.parametrize("affine", ["both", "weight", "none"])
def test_value_and_both_derivatives(shape: tuple[int, ...], affine: str) -> None:
    x = torch.randn(4, 3, 5).double().requires_grad_()
    channels = [
        torch.randn(shape).double().requires_grad_() for _ in range({"both": 2, "weight": 1, "none": 0}[affine])
    ]

    def ours(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        return LayerNorm.apply(x, weight, bias, shape, 1e-5, True)[0]

    torch.testing.assert_close(ours(x, *channels), F.layer_norm(x, shape, *channels), rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(ours, [x, *channels], check_forward_ad=True)


@pytest.mark.parametrize("bias", [False, True])
def test_linear_layers(bias: bool) -> None:
    args = [torch.randn(s).double().requires_grad_() for s in ((6, 3), (4, 3), *([(4,)] if bias else []))]
    torch.testing.assert_close(Pointwise.apply(*args), F.linear(*args), rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(Pointwise.apply, args, check_forward_ad=True)


class Mixer(nn.Module):
    """Both kinds of layers, called as functions and on three dimensions, with frozen parts and a bias of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 5, bias=False)
        self.scale = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.norm(self.first(x)))
        return F.linear(F.layer_norm(y, (8,), self.scale), self.second.weight).mean(1)


@pytest.mark.parametrize("names", [None, ["norm.bias", "scale"], ["first.bias"], ["second.weight"]], ids=str)
@pytest.mark.parametrize("merges", [False, True])
def test_products_of_networks_that_call_layer_norm_and_linear_layers(names: list[str] | None, merges: bool) -> None:
    torch.manual_seed(0)
    exact = Linearization(Mixer().double().eval(), names)
    x, v = torch.randn(3, 4, 6).double(), torch.randn(exact.size).double()
    fast = FastLinearization(exact, torch.float64, x, merges=merges)
    assert_same_products(fast, exact, x, v)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_tangents_keep_a_narrow_type_and_its_range(dtype: torch.dtype) -> None:
    x = (1e-2 * torch.randn(4, 64)).to(dtype)
    dx = torch.full_like(x, 3.0) * torch.randn(64).to(dtype)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, dx)
        dy = torch.autograd.forward_ad.unpack_dual(LayerNorm.apply(dual, None, None, (64,), 1e-5, True)[0]).tangent
    assert dy.dtype == dtype
    exact = _tangent(x.double(), dx.double(), None, None, None, 1e-5)
    assert relative(dy.double(), exact) < 0.01


@needs_triton
@pytest.mark.parametrize(("rows", "width"), [(7, 48), (70, 48), (3, 3000)])  # a part of a tile, several, one row each
def test_the_kernel_agrees_with_plain_operations(rows: int, width: int) -> None:
    (x, dx), (w, dw, db) = torch.randn(2, rows, width), torch.randn(3, width)
    for args in ((dx, w, dw, db), (None, w, dw, db), (dx, None, None, None), (dx, w, None, db), (dx, w, dw, None)):
        ours, theirs = _kernels().row_tangent(x, *args, 1e-5), _tangent(x, *args, 1e-5)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
