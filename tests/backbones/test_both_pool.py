"""Both poolings side by side: the mean, and the scaled root of the covariance, which no weight reaches."""

import copy

import pytest
import torch
from torch import Tensor, nn

from closeness import relative
from dense import jacobian
from fits import sequential
from lqf.backbones import Backbone, load_backbone
from lqf.backbones.average_pool import reduction_of, with_both_pools, with_pooling
from lqf.backbones.bilinear_pool import BilinearPool
from lqf.backbones.both_pool import BothPool
from lqf.fast import FastLinearization
from lqf.linear.linearize import Linearization

C, SCALE = 6, 0.37
ROWS = torch.linalg.qr(torch.randn(C, C, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))[0][:3]
reductions = pytest.mark.parametrize("rows", [ROWS, None], ids=["reduced", "all channels"])


def backbone() -> Backbone:
    layers = lambda: {  # noqa: E731
        "conv": nn.Conv2d(3, 5, 3),
        "tanh": nn.Tanh(),
        "deep": nn.Conv2d(5, C, 2),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flat": nn.Flatten(),
        "head": nn.Linear(C, 2),
    }
    return load_backbone(sequential(layers))


def pooled(rows: Tensor | None) -> Backbone:
    return with_both_pools(backbone(), "pool", rows, C if rows is None else len(rows), C, SCALE)


def pictures(n: int = 3) -> Tensor:
    return torch.randn(n, 3, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@reductions
def test_features_are_the_mean_and_the_scaled_bilinear_ones(rows: Tensor | None) -> None:
    k = C if rows is None else len(rows)
    bilinear, x = BilinearPool(rows, k), torch.randn(4, C, 5, 4, dtype=torch.float64)
    z = BothPool(bilinear, SCALE)(x)
    assert z.shape == (4, C + k * (k + 1) // 2)
    torch.testing.assert_close(z[:, :C], x.mean((2, 3)), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(z[:, C:], SCALE * bilinear(x), rtol=1e-12, atol=1e-14)


@reductions
def test_a_network_pools_both_ways_and_its_original_stays(rows: Tensor | None) -> None:
    before, own = backbone(), pooled(rows)
    kept = copy.deepcopy(before.body.state_dict())
    x = pictures()
    body = before.body.double()
    z = own.body.double()(x)
    assert own.features == z.shape[1]
    torch.testing.assert_close(z[:, :C], body(x), rtol=1e-10, atol=1e-12)
    maps = body.deep(body.tanh(body.conv(x)))
    expected = SCALE * BilinearPool(rows, C if rows is None else len(rows))(maps)
    torch.testing.assert_close(z[:, C:], expected, rtol=1e-8, atol=1e-10)
    assert all(torch.equal(kept[n], w.to(kept[n])) for n, w in before.body.state_dict().items())
    assert "pooling" not in before.spec


@reductions
def test_the_jacobian_goes_through_the_average_alone(rows: Tensor | None) -> None:
    both, average = Linearization(pooled(rows).body.double()), Linearization(backbone().body.double())
    x = pictures()
    own, expected = jacobian(both, x), jacobian(average, x)
    assert both.layout.names == average.layout.names
    assert relative(own[:, :C], expected) < 1e-10
    assert not own[:, C:].any()
    v = torch.randn(both.size, dtype=torch.float64)
    u = torch.randn(len(x), own.shape[1], dtype=torch.float64)
    for body in (both, FastLinearization(both, torch.float64, x)):
        dz = body.jvp(x, v)[1]
        torch.testing.assert_close(dz, own @ v, rtol=1e-9, atol=1e-10)
        assert not dz[:, C:].any()
        torch.testing.assert_close(body.vjp(x, u), torch.einsum("bod,bo->d", own, u), rtol=1e-9, atol=1e-10)


@reductions
def test_a_spec_makes_the_same_network_again(rows: Tensor | None) -> None:
    own = pooled(rows)
    spec = own.spec["pooling"]
    assert (spec["kind"], spec["module"], spec["average"], spec["scale"]) == ("both", "pool", C, SCALE)
    saved = reduction_of(own)
    assert (saved is None) is (rows is None)
    again = with_pooling(backbone(), spec, saved)
    assert again.spec == own.spec
    assert again.features == own.features
    assert torch.equal(again.body.double()(pictures()), own.body.double()(pictures()))
    assert reduction_of(backbone()) is None


def test_bilinear_pooling_alone_is_made_from_its_own_spec() -> None:
    spec = {"kind": "bilinear", "module": "pool", "channels": 3}
    made = with_pooling(backbone(), spec, ROWS)
    assert isinstance(made.body.get_submodule("pool"), BilinearPool)
    assert made.features == 6
