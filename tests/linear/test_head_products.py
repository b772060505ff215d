"""Products by pieces of columns equal the plain ones in float64."""

import pytest
import torch

from lqf.linear import head_products
from lqf.linear.model import LinearModel, with_one


@pytest.mark.parametrize("columns", [2, 5, 100])
def test_products(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_products, "COLUMNS", columns)
    z, a, v = torch.randn(4, 7), torch.randn(4, 3), torch.randn(3, 8)
    full = with_one(z).double()
    close = {"rtol": 1e-13, "atol": 1e-13}
    torch.testing.assert_close(head_products.gram(z), full @ full.T, **close)
    torch.testing.assert_close(head_products.vjp(a, z), a.double().T @ full, **close)
    torch.testing.assert_close(head_products.jvp(z, v), full @ v.double().T, **close)


def test_every_row_goes_through_its_own_head() -> None:
    heads, fold = torch.randn(3, 2, 5), torch.tensor([2, 0, 1, 1])
    model = LinearModel(None, heads, True, 0.5)  # type: ignore[arg-type]
    u, z = torch.randn(4, 2), torch.randn(4, 4)
    torch.testing.assert_close(model.to_features(u, fold), torch.einsum("bc,bcp->bp", u, heads[fold][..., :-1]))
    expected = 0.5 + torch.einsum("bp,bcp->bc", with_one(z), heads[fold])
    torch.testing.assert_close(model.base(z, fold), expected)
