"""A head on both poolings: two heads with a ridge strength each, from kernels that are not made twice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fits import CPU, FIXED, SMALL, classifier, convnet, pictures
from lqf import LQFClassifier
from lqf.backbones import load_backbone
from lqf.backbones.both_pool import BothPool
from lqf.data import load_samples, open_images
from lqf.fitting import Context, HeadFit, TrainingSet
from lqf.fitting.encoder import Encoder
from lqf.fitting.select_pooling import BILINEAR_SHARE, candidate_heads
from lqf.linear import head_products
from lqf.linear.inputs import average_views
from lqf.linear.model import with_one
from lqf.settings import Settings

X, Y = pictures(24, side=12)
NEW = pictures(5, side=12, seed=7)[0]
C = 5
"""Channels of the last map."""


def heads(views: str = "none", **settings: Any) -> dict[str, HeadFit]:
    """By pooling, as a climb tries them."""
    settings = {"views": views, "pool_channels": 3, "dtype": "float64", **settings}
    images = open_images(load_samples(X, Y), SMALL)
    data = TrainingSet.of(images, SMALL, Context(Settings(**settings), CPU))
    return {head.pooling: head for head in candidate_heads(data, load_backbone(convnet()))}


def test_a_climb_tries_both_poolings_alone_and_together() -> None:
    assert list(heads()) == ["avg", "bilinear", "both"]
    assert list(heads(solver="head")) == ["avg", "bilinear"]
    assert list(heads(solver="head", pooling="both")) == ["both"]


@pytest.mark.parametrize("views", ["none", "flip"])
def test_features_are_both_kinds_the_bilinear_ones_counting_so_many_times(views: str) -> None:
    found = heads(views)
    average, bilinear, z = (found[name].features for name in ("avg", "bilinear", "both"))
    pool = found["both"].backbone.body.get_submodule("pool")
    assert isinstance(pool, BothPool)
    torch.testing.assert_close(z, torch.cat([average, pool.scale * bilinear], 1), rtol=1e-12, atol=0)
    assert float((pool.scale * bilinear).square().sum() / average.square().sum()) == pytest.approx(BILINEAR_SHARE)
    again = Encoder(found["both"].data, found["both"].backbone).features()  # by the network that pools both ways
    torch.testing.assert_close(again, z, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("views", ["none", "flip"])
def test_kernels_that_are_given_are_those_of_the_features(views: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, tuple[Tensor, Tensor | None]] = {}
    plain = HeadFit.of.__func__  # type: ignore[attr-defined]

    def of(cls: type, encoder: Encoder, pooling: str, z: Tensor, *args: Any, gram: Tensor | None = None) -> HeadFit:
        seen[pooling] = z, gram
        return plain(cls, encoder, pooling, z, *args, gram=gram)

    monkeypatch.setattr(HeadFit, "of", classmethod(of))
    heads(views)
    assert list(seen) == ["avg", "bilinear", "both"]
    for z, gram in seen.values():
        assert gram is not None
        torch.testing.assert_close(gram, head_products.gram(z), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(gram, with_one(z) @ with_one(z).T, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("views", ["none", "flip"])
def test_the_head_is_two_heads_with_a_strength_each(views: str) -> None:
    """μ for the average (and the offset), μ/scale² for the bilinear features as they are."""
    mu = 0.1 * len(X)
    both = heads(views, weight_decay=0.1)["both"]
    pool = both.backbone.body.get_submodule("pool")
    assert isinstance(pool, BothPool)
    average, bilinear, one = both.features[:, :C], both.features[:, C:] / pool.scale, torch.ones(len(both.features), 1)
    z, s = torch.cat([average, bilinear, one.double()], 1), both.data.weights[:, None]
    strengths = torch.full((z.shape[1],), mu, dtype=torch.float64)
    strengths[C:-1] = mu / pool.scale**2
    v = torch.linalg.solve(z.T @ (s * z) + torch.diag(strengths), z.T @ (s * both.head.residual))
    expected = average_views(both.data.constant + z @ v, both.data.n_views)
    model = classifier(
        backbone=convnet(), size=8, solver="head", views=views, pooling="both", pool_channels=3, weight_decay=0.1
    ).fit(X, Y)
    np.testing.assert_allclose(model.decision_function(X), expected, rtol=1e-8, atol=1e-8)
    assert model.report_["pooling"] == "both"


@pytest.mark.parametrize("params", [{"solver": "head"}, {"solver": "dense", **FIXED}], ids=["head", "dense"])
@pytest.mark.parametrize("channels", [3, 256])
def test_a_saved_model_predicts_the_same(tmp_path: Path, params: dict[str, Any], channels: int) -> None:
    model = classifier(backbone=convnet(), size=8, pooling="both", views="flip", pool_channels=channels, **params)
    model.fit(X, Y).save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    np.testing.assert_array_equal(loaded.decision_function(NEW), model.decision_function(NEW))
    assert loaded.fitted_.backbone.spec == model.fitted_.backbone.spec


def test_the_network_is_solved_for_under_both_as_by_iteration() -> None:
    options = {"backbone": convnet(), "size": 8, "pooling": "both", "pool_channels": 3, "views": "none", **FIXED}
    dense = classifier(solver="dense", **options).fit(X, Y)
    pcg = classifier(solver="pcg", tol=1e-9, max_passes=500, loo="none", **options).fit(X, Y)
    np.testing.assert_allclose(pcg.decision_function(NEW), dense.decision_function(NEW), rtol=1e-6, atol=1e-6)
    head = classifier(solver="head", **{**options, "body_weight_decay": "auto"}).fit(X, Y)
    assert not np.allclose(head.decision_function(NEW), dense.decision_function(NEW), atol=1e-2)
