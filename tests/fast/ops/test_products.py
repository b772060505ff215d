"""Batched products with tangents that add where they lie equal PyTorch's, wherever a network calls them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import jvp, vjp

from lqf.fast.dispatch import FastOps
from lqf.fast.ops.products import BatchedProduct, product

WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "operator": lambda a, b: a @ b,
    "torch": torch.matmul,
    "method": lambda a, b: a.matmul(b),
    "transposed": lambda a, b: a @ b.mT.contiguous().mT,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("of", ["both", "first", "second"])
def test_values_and_derivatives(way: str, of: str) -> None:
    a, da = torch.randn(2, 2, 3, 4, 5, dtype=torch.float64)
    b, db = torch.randn(2, 2, 3, 5, 6, dtype=torch.float64)
    call: Callable[..., Tensor] = WAYS[way]
    given: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], tuple[Tensor, ...]]] = {
        "both": (call, (a, b), (da, db)),
        "first": (lambda x: call(x, b), (a,), (da,)),
        "second": (lambda x: call(a, x), (b,), (db,)),
    }
    function, primals, tangents = given[of]
    c, dc = jvp(function, primals, tangents)
    u = torch.randn_like(c)
    with FastOps(kernels=False, merged=True):
        ours = jvp(function, primals, tangents)
        back = vjp(function, *primals)[1](u)
    torch.testing.assert_close(ours, (c, dc), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(back, vjp(function, *primals)[1](u), rtol=1e-12, atol=1e-12)


def test_products_that_are_not_batched_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    for left, right in ((a[0], b[0]), (a, b[0]), (a[:1], b), (a, b.double()), (a[None], b)):
        assert product(left, right) is None
    called = []
    real = BatchedProduct.apply
    monkeypatch.setattr(BatchedProduct, "apply", lambda *xs: called.append(1) or real(*xs))
    with FastOps(kernels=False, merged=True):
        _ = a @ b, torch.bmm(a, b), a[0] @ b[0], torch.matmul(a, b[0])
    assert len(called) == 2
    with FastOps(kernels=False, merged=False):
        _ = a @ b
    assert len(called) == 2
