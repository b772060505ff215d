"""A head on both poolings: two heads with a ridge strength each, from kernels that are not made twice."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fits import CPU, FIXED, SMALL, classifier, convnet, pictures
from given_kernels import given_kernels
from lqf import LQFClassifier
from lqf.backbones import load_backbone
from lqf.backbones.both_pool import BothPool
from lqf.data import load_samples, open_images
from lqf.fitting import Context, HeadFit, TrainingSet
from lqf.fitting.both_poolings import PRIOR_SHARE, SHARES, Half, Pair, choose_share
from lqf.fitting.choices import choice_of_pooling
from lqf.fitting.encoder import Encoder
from lqf.fitting.select_pooling import best_head, candidate_heads, select_pooling
from lqf.linear import head_products
from lqf.linear.inputs import average_views
from lqf.linear.model import with_one
from lqf.settings import Settings
from two_kinds import TwoKinds

X, Y = pictures(24, side=12)
NEW = pictures(5, side=12, seed=7)[0]
C = 5
"""Channels of the last map."""


def training(x: np.ndarray = X, y: np.ndarray = Y, views: str = "none", **settings: Any) -> TrainingSet:
    settings = {"views": views, "pool_channels": 3, "dtype": "float64", **settings}
    return TrainingSet.of(open_images(load_samples(x, y), SMALL), SMALL, Context(Settings(**settings), CPU))


def heads(views: str = "none", **settings: Any) -> dict[str, HeadFit]:
    """By pooling, as a climb tries them."""
    data = training(views=views, **settings)
    return {head.pooling: head for head in candidate_heads(data, load_backbone(convnet()))}


def share_of(head: HeadFit) -> float:
    """Of the bilinear features."""
    average, bilinear = head.features[:, :C], head.features[:, C:]
    return float(bilinear.square().sum() / average.square().sum())


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
    assert any(share_of(found["both"]) == pytest.approx(share) for share in SHARES)
    again = Encoder(found["both"].data, found["both"].backbone).features()  # by the network that pools both ways
    torch.testing.assert_close(again, z, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("views", ["none", "flip"])
def test_kernels_that_are_given_are_those_of_the_features(views: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = given_kernels(monkeypatch)
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


# --- the share --------------------------------------------------------------------------------------------------------


def losses(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> dict[float, float]:
    """Leave-one-out cross-entropy of the head on both, by share."""
    out = {}
    for share in SHARES:
        monkeypatch.setattr("lqf.fitting.both_poolings.SHARES", (share,))
        both = heads(**settings)["both"]
        assert share_of(both) == pytest.approx(share)
        out[share] = both.choice.best.loss
    monkeypatch.undo()
    return out


@pytest.mark.parametrize(
    "settings",
    [{"views": "none"}, {"views": "flip"}, {"weight_decay": 0.01}, {"weight_decay": 3.0}],
    ids=["one view", "two views", "weak", "strong"],
)
def test_the_share_has_the_lowest_leave_one_out_loss(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tried = losses(monkeypatch, **settings)
    assert max(tried.values()) > 1.001 * min(tried.values())
    both = heads(**settings)["both"]
    assert share_of(both) == pytest.approx(min(tried, key=tried.__getitem__))
    assert both.choice.best.loss == pytest.approx(min(tried.values()), rel=1e-9)


def test_one_image_per_class_keeps_the_share_that_is_known_to_be_good() -> None:
    found = candidate_heads(training(X[:3], Y[:3]), load_backbone(convnet()))
    assert found[0].data.alone
    assert share_of(found[-1]) == pytest.approx(PRIOR_SHARE)


@pytest.mark.parametrize("views", ["none", "flip"])
@pytest.mark.parametrize("widths", [(5, 6), (5, 40)], ids=["few features", "many features"])
def test_of_many_samples_some_choose_the_share(
    views: str, widths: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As leave-one-out among these alone does, with the kernels of all or without."""
    chosen_shares = []
    for seed in range(4):
        data = training(views=views, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        z = [torch.randn(len(data.weights), p, generator=generator, dtype=torch.float64) for p in widths]
        monkeypatch.setattr("lqf.fitting.both_poolings.MOST_SAMPLES", 11)
        shares = [choose_share(Pair(*(Half.of(x, kernel) for x in z)), data) for kernel in (True, False)]
        monkeypatch.undo()
        mask = np.isin(np.arange(len(X)), np.random.default_rng(seed).permutation(len(X))[:11])
        pair, part = Pair(*map(Half, z)), data.some(mask)
        rows, encoder = torch.from_numpy(mask).repeat_interleave(data.n_views), Encoder(part, load_backbone(convnet()))
        tried = {s: HeadFit.of(encoder, "both", pair.features(pair.scale(s))[rows]).choice.best.loss for s in SHARES}
        assert shares == [min(tried, key=tried.__getitem__)] * 2
        chosen_shares.append(shares[0])
    assert len(set(chosen_shares)) > 1


def test_the_report_says_the_share() -> None:
    found = heads()
    (entry,) = choice_of_pooling(list(found.values()), found["both"])
    assert entry["share"] in SHARES
    assert entry["share"] == pytest.approx(share_of(found["both"]))
    (entry,) = choice_of_pooling(list(found.values()), found["avg"])
    assert "share" not in entry


# --- which head is kept -----------------------------------------------------------------------------------------------


def tried(**by_pooling: float) -> list[Any]:
    """Heads with these leave-one-out losses."""
    return [
        SimpleNamespace(pooling=name, choice=SimpleNamespace(best=SimpleNamespace(loss=loss)))
        for name, loss in by_pooling.items()
    ]


def test_both_are_kept_unless_another_pooling_is_clearly_better() -> None:
    assert best_head(tried(avg=0.5, bilinear=0.4, both=0.3)) == 2
    assert best_head(tried(avg=0.5, bilinear=0.4, both=0.4039)) == 2
    assert best_head(tried(avg=0.5, bilinear=0.4, both=0.4041)) == 1
    assert best_head(tried(both=0.3, avg=0.2)) == 1
    assert best_head(tried(avg=0.4039, bilinear=0.4)) == 1  # a near tie means nothing else
    assert best_head(tried(avg=0.4, bilinear=0.4)) == 0
    assert best_head(tried(avg=float("inf"), both=float("inf"))) == 1
    assert best_head(tried(avg=0.2, both=float("nan"))) == 0


def test_a_pooling_that_is_chosen_is_the_best_head() -> None:
    found = list(heads().values())
    kept = select_pooling(training(), load_backbone(convnet()))
    assert kept.pooling == found[best_head(found)].pooling
    assert list(kept.choices[0]["tried"]) == ["avg", "bilinear", "both"]


# --- the network ------------------------------------------------------------------------------------------------------


def test_the_network_is_solved_for_under_both_as_by_iteration() -> None:
    options = {"backbone": convnet(), "size": 8, "pooling": "both", "pool_channels": 3, "views": "none", **FIXED}
    dense = classifier(solver="dense", **options).fit(X, Y)
    pcg = classifier(solver="pcg", tol=1e-9, max_passes=500, loo="none", **options).fit(X, Y)
    np.testing.assert_allclose(pcg.decision_function(NEW), dense.decision_function(NEW), rtol=1e-6, atol=1e-6)
    head = classifier(solver="head", **{**options, "body_weight_decay": "auto"}).fit(X, Y)
    assert not np.allclose(head.decision_function(NEW), dense.decision_function(NEW), atol=1e-2)


STAGES: dict[str, Any] = {"strengths": "stages"}
"""Strengths that are chosen, one for every stage."""


def striped(n: int = 24, seed: int = 0) -> np.ndarray:
    """Noise, a little brighter at the top, in the middle or at the bottom: nothing that a mean of features shows."""
    x = np.random.default_rng(seed).integers(0, 200, (n, 12, 12, 3))
    for i in range(n):
        x[i, 4 * (i % 3) : 4 * (i % 3) + 4] += 25
    return x.astype(np.uint8)


STRIPED, NEW_STRIPED = striped(), striped(5, seed=7)


def under_both(**params: Any) -> LQFClassifier:
    options = {"backbone": convnet(), "size": 8, "pooling": "both", "pool_channels": 3, "views": "none", **params}
    return classifier(**options).fit(STRIPED, Y)


def by_hand(model: LQFClassifier, stages: tuple[str, ...] = ("",)) -> TwoKinds:
    return TwoKinds(model, load_backbone(convnet()), STRIPED, Y, stages)


@pytest.mark.parametrize(
    ("params", "stages"),
    [
        (FIXED, ("",)),
        ({**FIXED, "views": "flip"}, ("",)),
        ({**FIXED, "linearize": "deep"}, ("deep.",)),
        (STAGES, ("",)),
        ({**STAGES, "views": "flip"}, ("",)),
        ({**STAGES, "linearize": "bn"}, ("bn.", "deep.")),
    ],
    ids=["one strength", "views", "a part", "a strength per stage", "per stage, views", "per stage, a part"],
)
def test_the_network_acts_through_the_average_alone(params: dict[str, Any], stages: tuple[str, ...]) -> None:
    """f = V_a z̃_a + V_b z_b + W̄ J_a δ: outputs and leave-one-out by dense matrices."""
    model = under_both(**params)
    expected = by_hand(model, stages)
    outputs = model.decision_function(NEW_STRIPED)
    np.testing.assert_allclose(outputs, expected.outputs(NEW_STRIPED), rtol=1e-8, atol=1e-8)
    loo = model.leave_one_out()
    assert loo.level == "exact"
    torch.testing.assert_close(loo.outputs[:6], expected.left_out(6), rtol=1e-8, atol=1e-8)
    assert model.report_["unknowns"] == len(expected.solution())


def test_a_strength_per_stage_differs_from_stage_to_stage() -> None:
    model = under_both(**STAGES)
    stages = model.report_["ridge"]["stages"]
    assert list(stages) == ["conv", "bn", "deep"]
    assert len({round(mu, 6) for mu in stages.values()}) == 3
    (entry,) = [c for c in model.report_["choices"] if c["what"] == "weight decay (stages)"]
    assert entry["strengths"] == {name: mu / len(X) for name, mu in stages.items()}


def test_the_point_is_the_head_of_the_average_with_its_own_strength() -> None:
    model = under_both(**STAGES)
    average = HeadFit.of(Encoder(training(STRIPED), load_backbone(convnet())), "avg", by_hand(model).features[:, :C])
    assert model.report_["point_ridge"] == pytest.approx(average.choice.mu, rel=1e-9)
    assert model.report_["point_ridge"] != pytest.approx(model.report_["ridge"]["head"], rel=1e-3)
    expected = by_hand(model).heads.mean(0)[:, :-1]
    torch.testing.assert_close(model.fitted_.point[:, :C], expected, rtol=1e-9, atol=1e-9)
    assert not model.fitted_.point[:, C:].any()  # the bilinear features stay as they are


@pytest.mark.parametrize("views", ["none", "flip"])
def test_strengths_per_stage_are_solved_for_as_by_iteration(views: str) -> None:
    dense = under_both(views=views, **STAGES)
    pcg = under_both(views=views, solver="pcg", tol=1e-9, max_passes=500, loo="none", **STAGES)
    assert pcg.report_["converged"]
    assert pcg.report_["ridge"]["stages"] == pytest.approx(dense.report_["ridge"]["stages"], rel=1e-9)
    outputs = dense.decision_function(NEW_STRIPED)
    np.testing.assert_allclose(pcg.decision_function(NEW_STRIPED), outputs, rtol=1e-6, atol=1e-6)


def test_a_model_is_analysed_around_the_same_point() -> None:
    model = under_both(**STAGES)
    found = model.analyse(STRIPED, Y).leave_one_out()
    torch.testing.assert_close(found.outputs, model.leave_one_out().outputs, rtol=1e-7, atol=1e-7)
