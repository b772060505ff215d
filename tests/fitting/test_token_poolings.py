"""Poolings of a network's last tokens: their features and kernels, the choice between them, and fits under each."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fits import CPU, FIXED, classifier, pictures
from given_kernels import given_kernels
from launches import by_agent
from lqf import LQFClassifier
from lqf.backbones import Backbone, load_backbone
from lqf.backbones.average_pool import AveragePool
from lqf.backbones.token_pool import Tokens
from lqf.data import Preprocess, load_samples, open_images
from lqf.errors import LQFError
from lqf.fast import FastLinearization
from lqf.fitting import Context, HeadFit, TrainingSet
from lqf.fitting.both_poolings import SHARES
from lqf.fitting.encoder import Encoder
from lqf.fitting.select_pooling import candidate_heads, candidates
from lqf.fitting.select_views import in_views
from lqf.fitting.token_poolings import KINDS, MEAN, OWN, OWN_MEAN
from lqf.linear import head_products
from lqf.linear.linearize import linearized_body
from lqf.runtime.distributed import joined
from lqf.settings import Settings
from token_networks import LIBRARY, SIDE, WIDTH, made, own, transformer
from two_kinds import TwoKinds

X, Y = pictures(24, side=14)
NEW = pictures(5, side=14, seed=7)[0]
EVERY = tuple(KINDS)
NORMED: dict[str, Any] = {"pool": "mean", "after": nn.LayerNorm(WIDTH)}
"""A network whose own features are the mean of its tokens, normalised."""
POOLS = pytest.mark.parametrize("pool", [{}, {"prefix": 3}, NORMED], ids=["class", "registers", "mean"])


def training(side: int = SIDE, **settings: Any) -> TrainingSet:
    settings = {"views": "none", "pool_channels": 3, "dtype": "float64", **settings}
    preprocess = Preprocess(size=side, resize=side + 2)
    return TrainingSet.of(open_images(load_samples(X, Y), preprocess), preprocess, Context(Settings(**settings), CPU))


def heads(backbone: Backbone | None = None, side: int = SIDE, **settings: Any) -> dict[str, HeadFit]:
    """By pooling; as a climb tries them, unless a solver is given."""
    found = candidate_heads(training(side, **settings), backbone or own())
    return {head.pooling: head for head in found}


def fitted(**params: Any) -> LQFClassifier:
    params = {"backbone": transformer(), "size": SIDE, "views": "none", "pool_channels": 3, **params}
    return classifier(**params).fit(X, Y)


# --- features ---------------------------------------------------------------------------------------------------------


def test_a_climb_tries_all_and_a_named_fit_each_alone() -> None:
    assert tuple(heads()) == EVERY == (OWN, MEAN, OWN_MEAN, "bilinear", "both")
    assert tuple(heads(solver="head")) == (OWN, MEAN, "bilinear")
    assert tuple(heads(linearize_reduction=True)) == (OWN, MEAN, "bilinear")
    assert tuple(heads(own(**NORMED))) == (OWN, "bilinear", "both")
    assert tuple(heads(own(pool="max"))) == (OWN,)


def check_features(found: dict[str, HeadFit]) -> None:
    """The network that is kept makes the features that the head was fitted on."""
    for name, head in found.items():
        assert head.backbone.spec.get("pooling", {"kind": "own"})["kind"] == KINDS[name]
        assert head.features.shape[1] == head.backbone.features
        again = Encoder(head.data, head.backbone).features()
        torch.testing.assert_close(again, head.features, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(head.encoder.features(), again, rtol=1e-12, atol=1e-12)


@POOLS
@pytest.mark.parametrize("views", ["none", "flip"])
@pytest.mark.parametrize("channels", [3, 256], ids=["reduced", "all channels"])
def test_features_are_those_of_a_direct_pass(pool: dict[str, Any], views: str, channels: int) -> None:
    check_features(heads(own(**pool), views=views, pool_channels=channels))


def test_features_of_a_linearised_part() -> None:
    found = heads(linearize="blocks.1")
    assert tuple(found) == EVERY
    check_features(found)
    whole = heads()
    for name, head in found.items():
        torch.testing.assert_close(head.features, whole[name].features, rtol=1e-9, atol=1e-9)


@pytest.mark.timm
@pytest.mark.parametrize("name", LIBRARY)
def test_features_of_library_networks(name: str) -> None:
    backbone, x, tokens = made(name)
    found = heads(backbone, x.shape[2])
    assert [KINDS[n] for n in found] == list(tokens.kinds)
    check_features(found)


def test_tokens_that_do_not_fit_are_another_pass_with_the_same_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    plain = Encoder.features
    monkeypatch.setattr(Encoder, "features", lambda self, moment=None: passes.append(1) or plain(self, moment))
    found = []
    for maps, expected in ((8, 1), (10**18, 2)):
        monkeypatch.setattr("lqf.fitting.select_pooling.MAPS", maps)
        passes.clear()
        found.append(heads())
        assert len(passes) == expected
    for a, b in zip(*(f.values() for f in found), strict=True):
        torch.testing.assert_close(a.features, b.features, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("pool", [{}, NORMED], ids=["class", "mean"])
def test_merged_layers_as_on_a_gpu_make_the_same_heads(pool: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = heads(own(**pool))

    def merged(self: Encoder) -> FastLinearization:
        return FastLinearization(self.body, self.context.dtype, self.inputs.example(), recorded=False, merges=True)

    reader = cached_property(merged)
    reader.__set_name__(Encoder, "reader")
    monkeypatch.setattr(Encoder, "reader", reader)
    for name, head in heads(own(**pool)).items():
        torch.testing.assert_close(head.features, expected[name].features, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("views", ["none", "flip"])
def test_kernels_that_are_given_are_those_of_the_features(views: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = given_kernels(monkeypatch)
    heads(views=views)
    assert tuple(seen) == EVERY
    for z, gram in seen.values():
        assert gram is not None
        torch.testing.assert_close(gram, head_products.gram(z), rtol=1e-9, atol=1e-9)
    monkeypatch.setattr("lqf.fitting.select_pooling.MOST_ROWS", {"cpu": 3, "cuda": 3})
    heads(views=views, pooling="both")
    assert seen["both"][1] is None  # where there are many rows it is not made


@pytest.mark.parametrize("name", [OWN_MEAN, "both"])
def test_what_stands_beside_the_own_features_has_one_of_the_shares(name: str) -> None:
    first, second = heads()[name].features.split([WIDTH, 8 if name == OWN_MEAN else 6], 1)
    assert any(float(second.square().sum() / first.square().sum()) == pytest.approx(share) for share in SHARES)


def test_the_reduction_is_that_of_the_weighted_moment() -> None:
    model = classifier(backbone=transformer(), size=SIDE, pooling="bilinear", pool_channels=2, solver="head")
    w = np.linspace(0.5, 2, len(X))
    model.set_params(views="none").fit(X, Y, w)
    tokens: list[Tensor] = []
    body = model.fitted_.backbone.body
    body.get_submodule("norm").register_forward_hook(lambda _m, _x, y: tokens.append(y))
    model.decision_function(X)
    t = torch.cat(tokens)[:, 1:]
    t = t - t.mean(1, keepdim=True)
    top = torch.linalg.eigh(torch.einsum("b,bli,blj->ij", torch.tensor(w), t, t) / t.shape[1])[1][:, -2:]
    rows = body.get_submodule("lqf_token_pool").rows
    torch.testing.assert_close(rows.T @ rows, top @ top.T, rtol=1e-8, atol=1e-8)


@POOLS
def test_more_views_are_added_under_the_pooling_that_is_kept(pool: dict[str, Any]) -> None:
    for name, head in heads(own(**pool)).items():
        grown = in_views(in_views(head, "flip"), "crops5")
        at_once = Encoder(head.data.with_views("crops5"), head.backbone).features()
        assert grown.pooling == name
        torch.testing.assert_close(grown.features, at_once, rtol=1e-8, atol=1e-9)


# --- the choice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["head", "dense"])
def test_the_lowest_leave_one_out_loss_is_kept(solver: str) -> None:
    model = fitted(solver=solver)
    choice = model.report_["choices"][0]
    losses = {name: t["loss"] for name, t in choice["tried"].items()}
    assert list(losses) == [OWN, MEAN, "bilinear"]
    assert choice["kept"] == model.report_["pooling"] == min(losses, key=losses.__getitem__)
    for name, head in heads(solver="head").items():
        assert head.choice.best.loss == pytest.approx(losses[name], rel=1e-9)


def test_a_climb_says_what_it_tried_and_the_share_of_what_it_kept() -> None:
    model = fitted(solver="auto", effort="quick", backbone=transformer(3))
    choice = model.report_["choices"][0]
    assert tuple(choice["tried"]) == EVERY
    assert model.report_["rungs"][0]["pooling"] == choice["kept"]
    assert ("share" in choice) == (choice["kept"] in (OWN_MEAN, "both"))
    assert choice.get("share", SHARES[0]) in SHARES


@pytest.mark.parametrize("name", EVERY)
def test_a_pooling_that_is_given_by_its_name_is_made_again(name: str) -> None:
    """As a fit that goes on does."""
    (head,) = candidate_heads(training(), own(), name)
    assert head.pooling == name
    torch.testing.assert_close(head.features, heads()[name].features, rtol=1e-9, atol=1e-9)


def test_the_backbones_own_is_the_backbone_as_it_is() -> None:
    backbone = own()
    assert heads(backbone)[OWN].backbone is backbone
    (alone,) = candidate_heads(training(), own(pool="max"), OWN)
    assert alone.pooling == OWN


@pytest.mark.parametrize("asked", ["avg", "bilinear", "both"])
def test_a_network_without_tokens_is_refused(asked: str) -> None:
    with pytest.raises(LQFError, match=f"pooling `{asked}` needs a network that ends in an average"):
        fitted(backbone=transformer(pool="max"), pooling=asked)


def test_avg_is_the_mean_of_the_patches() -> None:
    assert tuple(heads(pooling="avg")) == (MEAN,)
    assert tuple(heads(own(**NORMED), pooling="avg")) == (OWN,)
    assert fitted(solver="head", pooling="avg").report_["pooling"] == MEAN


def test_a_stage_after_the_tokens_leaves_the_backbones_own() -> None:
    assert tuple(heads(own(**NORMED), linearize="after")) == (OWN,)
    assert tuple(heads(own(**NORMED), linearize="norm")) == (OWN, "bilinear", "both")
    with pytest.raises(LQFError, match=r"pooling `bilinear` takes its features before `after`.*earlier stage"):
        heads(own(**NORMED), linearize="after", pooling="bilinear")


TOKENS = Tokens("norm", "output", "tokens", 1, 192, 196, "class")
DATA: dict[str, Any] = {"name": "net", "rows": 100, "item": 4, "memory": 1 << 33, "device": "cpu"}


def test_bounds_are_those_of_other_networks() -> None:
    assert candidates("auto", TOKENS, 256, **DATA).names == (OWN, MEAN, "bilinear")
    assert candidates("auto", TOKENS, 256, **DATA, together=True).names == EVERY
    assert candidates("auto", TOKENS, 256, **DATA).channels == 192
    pool = AveragePool("pool", 192, 196)
    for less in ({"rows": 10**5}, {"memory": 1 << 20}):
        few = candidates("auto", TOKENS, 256, **{**DATA, **less}, together=True)
        assert few.names == (OWN, MEAN, OWN_MEAN)
        assert few.note == candidates("auto", pool, 256, **{**DATA, **less}).note != ""
        assert candidates("bilinear", TOKENS, 256, **{**DATA, **less}).names == ("bilinear",)


# --- fits -------------------------------------------------------------------------------------------------------------


@POOLS
@pytest.mark.parametrize("params", [{"solver": "head"}, {"solver": "dense", **FIXED}], ids=["head", "dense"])
@pytest.mark.parametrize("pooling", ["auto", "avg", "bilinear", "both"])
def test_a_saved_model_predicts_the_same(
    tmp_path: Path, pool: dict[str, Any], params: dict[str, Any], pooling: str
) -> None:
    model = fitted(backbone=transformer(**pool), pooling=pooling, **{**params, "views": "flip"})
    model.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=transformer(**pool), device="cpu")
    np.testing.assert_array_equal(loaded.decision_function(NEW), model.decision_function(NEW))
    assert loaded.fitted_.backbone.spec == model.fitted_.backbone.spec
    assert loaded.report_ == model.report_


def test_a_climbs_own_and_mean_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.fitting.select_pooling.means_of", lambda *_: (OWN_MEAN,))
    monkeypatch.setattr("lqf.fitting.select_pooling.MOST_ROWS", {"cpu": 3, "cuda": 3})
    model = fitted(solver="auto", effort="quick")
    assert model.report_["pooling"] == OWN_MEAN
    model.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=transformer(), device="cpu")
    np.testing.assert_array_equal(loaded.decision_function(NEW), model.decision_function(NEW))


@pytest.mark.parametrize("linearize", ["all", "blocks.1"])
@pytest.mark.parametrize("pooling", ["avg", "bilinear", "both"])
def test_dense_and_pcg_agree(pooling: str, linearize: str) -> None:
    options = {"pooling": pooling, "linearize": linearize, "weight_decay": 0.1, "body_weight_decay": 30.0}
    dense = fitted(solver="dense", **options)
    pcg = fitted(solver="pcg", tol=1e-9, max_passes=500, loo="none", **options)
    assert pcg.report_["converged"]
    np.testing.assert_allclose(pcg.decision_function(NEW), dense.decision_function(NEW), rtol=1e-6, atol=1e-6)
    head = fitted(solver="head", **{**options, "body_weight_decay": "auto"})
    assert not np.allclose(head.decision_function(NEW), dense.decision_function(NEW), atol=1e-2)


@pytest.mark.parametrize(
    "params",
    [{"weight_decay": 0.1, "body_weight_decay": 3.0}, {"strengths": "stages"}],
    ids=["one strength", "one per stage"],
)
def test_the_network_acts_through_its_own_features_alone(params: dict[str, Any]) -> None:
    """f = V_a z̃_a + V_b z_b + W̄ J_a δ: outputs and leave-one-out by dense matrices."""
    model = fitted(pooling="both", **params)
    assert bool(model.fitted_.report.ridge.stages) == ("strengths" in params)
    expected = TwoKinds(model, own(), X, Y)
    np.testing.assert_allclose(model.decision_function(NEW), expected.outputs(NEW), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(model.leave_one_out().outputs[:6], expected.left_out(6), rtol=1e-8, atol=1e-8)


def test_the_network_is_linearised_under_its_own_features() -> None:
    both, alone = heads(pooling="both")["both"], heads()[OWN]
    torch.testing.assert_close(both.acting.features, alone.features, rtol=1e-10, atol=1e-10)
    assert both.point_ridge == pytest.approx(alone.choice.mu)


def test_a_reduction_that_may_change_is_one_of_the_weights() -> None:
    model = fitted(pooling="bilinear", linearize_reduction=True, **FIXED)
    names = linearized_body(model.fitted_.backbone.body, "all")[1].layout.names
    assert "lqf_token_pool.bilinear.reduce.weight" in names


@pytest.mark.parametrize("pooling", ["avg", "both"])
def test_a_moved_network_comes_back(tmp_path: Path, pooling: str) -> None:
    model = fitted(pooling=pooling, relinearize=1, loo="none", weight_decay=1.0, body_weight_decay=30.0)
    model.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=transformer(), device="cpu")
    np.testing.assert_array_equal(loaded.decision_function(NEW), model.decision_function(NEW))


def scores(world: Any = None) -> dict[str, list[Any]]:
    """Of a climb's heads: losses and shares, by pooling, and what is kept."""
    model = classifier(backbone=transformer(), size=SIDE, views="none", pool_channels=3, solver="auto", effort="quick")
    model.fit(X, Y, **({} if world is None else {"world": world}))
    choice = model.report_["choices"][0]
    tried = {name: [t["loss"], t["loo_error"]] for name, t in choice["tried"].items()}
    return {"kept": [choice["kept"]], **tried, "outputs": model.decision_function(NEW).ravel().tolist()}


def process() -> int:
    """One of two; the first one writes what they found."""
    with joined("cpu") as world:
        found = scores(world)
        if world.rank == 0:
            Path("out.json").write_text(json.dumps(found))
    return 0


def test_many_processes_choose_as_one(tmp_path: Path) -> None:
    done = by_agent(process, [], tmp_path, 2)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    for name, expected in scores().items():
        assert found[name] == (expected if name == "kept" else pytest.approx(expected, rel=1e-6, abs=1e-8))


# --- GPU --------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("pool", [{}, NORMED], ids=["class", "mean"])
def test_on_a_gpu_heads_are_the_same(pool: dict[str, Any]) -> None:
    data = training()
    there = TrainingSet(data.images, data.preprocess, Context(data.context.settings, torch.device("cuda")))
    found = candidate_heads(there, load_backbone(transformer(**pool)))
    for name, head in heads(own(**pool)).items():
        other = next(h for h in found if h.pooling == name)
        assert other.choice.best.loss == pytest.approx(head.choice.best.loss, rel=1e-5)
