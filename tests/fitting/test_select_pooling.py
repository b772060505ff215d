"""The pooling of a fit: chosen by leave-one-out, or as asked for, through the solvers and back from the disk."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fits import FIXED, classifier, convnet, data, pictures, sequential
from lqf import LQFClassifier
from lqf.backbones.average_pool import AveragePool
from lqf.backbones.bilinear_pool import BilinearPool, ChannelMoment
from lqf.errors import LQFError
from lqf.fast import FastLinearization
from lqf.fitting.encoder import Encoder
from lqf.fitting.select_pooling import OWN, candidates
from lqf.linear.linearize import linearized_body


def network() -> nn.Module:
    """Keeps the pixels' correlations, and is linear: their mean has none of it. Stages `conv` and `deep`."""
    return sequential(
        lambda: {
            "conv": nn.Conv2d(3, 6, 1),
            "deep": nn.Conv2d(6, 6, 1),
            "pool": nn.AdaptiveAvgPool2d(1),
            "flat": nn.Flatten(),
            "head": nn.Linear(6, 2),
        }
    )


def textures(n: int = 40, side: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, side, side, 3) noise of one mean and one variance; red and green agree in class 0 and oppose in class 1."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    noise = rng.normal(size=(n, side, side, 3))
    noise[..., 1] = noise[..., 0] * np.where(y, -1, 1)[:, None, None]
    noise -= noise.mean((1, 2), keepdims=True)
    return np.clip(128 + 40 * noise, 0, 255).astype(np.uint8), y


def fitted(x: np.ndarray, y: np.ndarray, **params: Any) -> LQFClassifier:
    return classifier(**{"backbone": network(), "size": 8, "views": "none", **params}).fit(x, y)


@pytest.mark.parametrize("solver", ["head", "dense"])
def test_second_order_statistics_choose_bilinear(solver: str) -> None:
    model = fitted(*textures(), solver=solver)
    chosen = model.report_["choices"][0]
    assert (model.report_["pooling"], chosen["what"], chosen["kept"]) == ("bilinear", "pooling", "bilinear")
    assert chosen["tried"]["bilinear"]["loss"] < chosen["tried"]["avg"]["loss"]
    assert chosen["tried"]["bilinear"]["loo_error"] == model.report_["head_loo_error"] == 0
    assert chosen["tried"]["avg"]["loo_error"] > 0.2
    assert model.score(*textures(20, seed=5)) == 1
    assert model.fitted_.backbone.features == 21


def test_merged_layers_as_on_a_gpu_make_the_same_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = pictures(24)
    options = {"backbone": convnet(), "size": 10, "solver": "head", "pool_channels": 3, "dtype": "float64"}
    expected = classifier(**options).fit(x, y).report_["choices"]

    def merged(self: Encoder) -> FastLinearization:
        return FastLinearization(self.body, self.context.dtype, self.inputs.example(), recorded=False, merges=True)

    reader = cached_property(merged)
    reader.__set_name__(Encoder, "reader")
    monkeypatch.setattr(Encoder, "reader", reader)
    for ours, theirs in zip(classifier(**options).fit(x, y).report_["choices"], expected, strict=True):
        assert ours["what"] == theirs["what"]
        tried = [c["tried"].values() if isinstance(c["tried"], dict) else c["tried"] for c in (ours, theirs)]
        for a, b in zip(*tried, strict=True):
            assert a["loss"] == pytest.approx(b["loss"], rel=1e-8)


@pytest.mark.parametrize("views", ["none", "flip"])
def test_maps_that_do_not_fit_are_another_pass_with_the_same_outcome(
    views: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = pictures(24)
    options = {"backbone": convnet(), "size": 10, "solver": "head", "pool_channels": 3, "views": views}
    passes: list[int] = []
    plain = Encoder.features
    monkeypatch.setattr(Encoder, "features", lambda self, moment=None: passes.append(1) or plain(self, moment))
    choices = []
    for maps, expected in ((8, 1), (10**18, 2)):
        monkeypatch.setattr("lqf.fitting.select_pooling.MAPS", maps)
        passes.clear()
        choices.append(classifier(**options, dtype="float64").fit(x, y).report_["choices"][0])
        assert len(passes) == expected
    for a, b in zip(*(c["tried"].values() for c in choices), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-8)


def test_the_mean_chooses_avg() -> None:
    """Brightness is all that differs; the covariance knows nothing of it."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = (rng.integers(0, 100, (40, 8, 8, 3)) + 12 * y[:, None, None, None]).astype(np.uint8)
    model = fitted(x, y, solver="head")
    assert model.report_["pooling"] == "avg"
    assert model.report_["choices"][0]["kept"] == "avg"
    same = fitted(x, y, solver="head", pooling="avg")
    np.testing.assert_array_equal(model.decision_function(x), same.decision_function(x))
    assert [c["what"] for c in same.report_["choices"]] == ["weight decay (head)"]


def test_what_was_given_is_no_choice() -> None:
    model = fitted(*textures(), pooling="bilinear", **FIXED)
    assert model.report_["choices"] == []
    assert [c["what"] for c in fitted(*textures(), form="w0").report_["choices"]][-1] == "weight decay (model)"


@pytest.mark.parametrize("linearize", ["all", "deep"])
@pytest.mark.parametrize(("channels", "linearised"), [(3, False), (3, True), (256, False)])
def test_dense_and_pcg_agree(linearize: str, channels: int, linearised: bool) -> None:
    params = {"pooling": "bilinear", "pool_channels": channels, "linearize": linearize, **FIXED}
    params["linearize_reduction"] = linearised
    x, y = textures(24)
    dense = fitted(x, y, **params)
    names = linearized_body(dense.fitted_.backbone.body, linearize)[1].layout.names
    assert ("pool.reduce.weight" in names) == linearised
    pcg = fitted(x, y, solver="pcg", tol=1e-9, max_passes=300, **params)
    assert dense.fitted_.backbone.features == (6 if channels == 3 else 21)
    assert pcg.report_["converged"]
    new = textures(10, seed=3)[0]
    np.testing.assert_allclose(pcg.decision_function(new), dense.decision_function(new), rtol=1e-5, atol=1e-5)


def test_a_reduction_that_may_change_in_float32() -> None:
    x, y = textures(24)
    options = {"pooling": "bilinear", "pool_channels": 3, "linearize_reduction": True, **FIXED}
    wide = fitted(x, y, **options).decision_function(x)
    np.testing.assert_allclose(fitted(x, y, dtype="float32", **options).decision_function(x), wide, atol=1e-2)


@pytest.mark.parametrize("moves", [{}, {"relinearize": 1, "loo": "none"}], ids=["as it is", "moved"])
@pytest.mark.parametrize(("channels", "linearised"), [(3, False), (3, True), (256, False), (256, True)])
def test_a_saved_model_comes_back(tmp_path: Path, channels: int, linearised: bool, moves: dict[str, Any]) -> None:
    x, y = textures(24)
    model = fitted(x, y, pooling="bilinear", pool_channels=channels, linearize_reduction=linearised, **moves)
    model.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=network(), device="cpu")
    new = textures(10, seed=3)[0]
    np.testing.assert_allclose(loaded.decision_function(new), model.decision_function(new), rtol=1e-12)
    assert loaded.report_ == model.report_
    pool = loaded.fitted_.backbone.body.get_submodule("pool")
    assert isinstance(pool, BilinearPool)
    assert (pool.rows is None) == (channels == 256)
    assert (pool.reduce is not None) == (linearised and channels == 3)


def test_the_reduction_is_that_of_the_weighted_moment() -> None:
    x, y = textures(20)
    w = np.linspace(0.5, 2, 20)
    model = classifier(backbone=network(), size=8, pooling="bilinear", pool_channels=2, solver="head", views="none")
    model.fit(x, y, w)
    body, maps = model.fitted_.backbone.body, []
    body.get_submodule("pool").register_forward_pre_hook(lambda _, inputs: maps.append(inputs[0]))
    model.decision_function(x)
    m = torch.cat(maps).flatten(2)
    m = m - m.mean(2, keepdim=True)
    moment = torch.einsum("b,bil,bjl->ij", torch.tensor(w), m, m) / m.shape[2]
    top = torch.linalg.eigh(moment)[1][:, -2:]
    rows = body.get_submodule("pool").reduction
    torch.testing.assert_close(rows.T @ rows, top @ top.T, rtol=1e-8, atol=1e-8)


def test_moments_add_up() -> None:
    pool, x = nn.AdaptiveAvgPool2d(1), torch.randn(4, 3, 5, 5, dtype=torch.float64)
    with ChannelMoment(pool) as moment:
        for part in x.split(2):
            pool(part)
            moment.add(torch.ones(2))
    y = x.flatten(2) - x.flatten(2).mean(2, keepdim=True)
    torch.testing.assert_close(moment.sum, torch.einsum("bil,bjl->ij", y, y) / 25)
    pool(x)  # it no longer looks
    assert not pool._forward_pre_hooks


# --- what is asked for, and what there is -----------------------------------------------------------------------------

POOL = AveragePool("pool", 512, 49)
DATA: dict[str, Any] = {"name": "net", "rows": 100, "item": 4, "memory": 1 << 33, "device": "cpu"}


def test_auto_tries_both_where_that_is_affordable() -> None:
    assert candidates("auto", POOL, 256, **DATA).names == ("avg", "bilinear")
    assert candidates("auto", AveragePool("pool", 512, 1), 256, **DATA).names == ("avg",)
    assert candidates("auto", None, 256, **DATA).names == (OWN,)
    many = candidates("auto", POOL, 256, **{**DATA, "rows": 10**5})
    assert many.names == ("avg",)
    assert "100,000 rows" in many.note
    assert "memory" in candidates("auto", POOL, 256, **{**DATA, "memory": 1 << 20}).note
    assert candidates("bilinear", POOL, 256, **{**DATA, "rows": 10**5}).names == ("bilinear",)
    assert candidates("auto", POOL, 256, **DATA, together=True).names == ("avg", "bilinear", "both")
    assert candidates(OWN, POOL, 256, **DATA).names == ("avg", "bilinear")  # of a fit before the pooling was found


@pytest.mark.parametrize("asked", ["avg", "bilinear"])
def test_a_network_without_an_average_is_refused(asked: str) -> None:
    with pytest.raises(LQFError, match=f"pooling `{asked}` needs a network that ends in an average"):
        classifier(pooling=asked).fit(*data())


def test_a_map_of_one_position_is_refused() -> None:
    x, y = pictures(12)
    with pytest.raises(LQFError, match="several positions"):
        classifier(backbone=convnet(), size=5, pooling="bilinear").fit(x, y)
    assert classifier(backbone=convnet(), size=5, solver="head").fit(x, y).report_["pooling"] == "avg"
