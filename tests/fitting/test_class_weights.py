"""Class weights are sample weights: every solver, every judgement and every saved model sees them as such."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fits import CPU, FIXED, SMALL, classifier, convnet, opened
from fits import photos as painted
from lqf import LQFClassifier
from lqf.data import load_samples, open_images, with_weights
from lqf.data.shards import Shard
from lqf.errors import LQFError
from lqf.fitting import Context
from lqf.fitting.class_weights import about_unequal, as_they_come, class_weights, own_weights
from lqf.fitting.reopen import reopen
from lqf.reports.weighting import class_weights as shown
from lqf.settings import Settings
from recorder import Interrupting, Recorder
from unequal import RARE, factors, photos, vectors

X, Y = vectors()
S = np.linspace(0.5, 2, len(Y))
GIVEN = {0: 0.5, RARE: 3.0}
"""Class 1 keeps its weight."""
LIST = np.array([0.5, 1.0, 3.0])
PCG = {"solver": "pcg", "tol": 1e-9, "max_passes": 60, "unconverged": "keep"}
WAYS: dict[str, dict[str, Any]] = {
    "head": {"solver": "head"},
    "dense": {"solver": "dense"},
    "dense by stages": {"solver": "dense", "strengths": "stages"},
    "pcg": {**PCG, **FIXED},
    "pcg, strengths chosen": PCG,
    "sgd": {"solver": "sgd", "epochs": 3, "minibatch": 5, **FIXED},
    "relinearised": {"solver": "dense", "relinearize": 1, "loo": "folds"},
}


def assert_close(found: Any, expected: Any) -> None:
    """Of two reports."""
    assert found == (pytest.approx(expected, rel=1e-10) if isinstance(expected, float) else expected)


def assert_same(model: LQFClassifier, other: LQFClassifier, x: np.ndarray = X) -> None:
    """Predictions, what leave-one-out says and what it is taken for."""
    np.testing.assert_allclose(model.decision_function(x), other.decision_function(x), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(model.predict_proba(x), other.predict_proba(x), rtol=1e-10, atol=1e-10)
    for name in (
        "weight_decay",
        "body_weight_decay",
        "loo_error",
        "loo_standard_error",
        "loo_balanced_error",
        "head_loo_error",
        "error",
    ):
        assert_close(model.report_[name], other.report_[name])
    one, two = model.fitted_.loo, other.fitted_.loo
    assert (one is None) == (two is None)
    if one is not None and two is not None:
        np.testing.assert_allclose(one.outputs, two.outputs, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(one.weights, two.weights, rtol=1e-14)


@pytest.mark.parametrize("way", WAYS)
def test_they_are_sample_weights(way: str) -> None:
    model = classifier(class_weight="balanced", **WAYS[way]).fit(X, Y)
    assert_same(model, classifier(**WAYS[way]).fit(X, Y, sample_weight=factors(Y)[Y]))
    plain = classifier(**WAYS[way]).fit(X, Y)
    assert np.abs(model.decision_function(X) - plain.decision_function(X)).max() > 1e-3


@pytest.mark.parametrize("way", ["head", "dense"])
def test_they_multiply_the_weights_of_the_samples(way: str) -> None:
    model = classifier(class_weight=GIVEN, **WAYS[way]).fit(X, Y, sample_weight=S)
    assert_same(model, classifier(**WAYS[way]).fit(X, Y, sample_weight=S * LIST[Y]))
    assert model.report_["class_weights"] == {"0": 0.5, "1": 1.0, "2": 3.0}
    model = classifier(class_weight="balanced", **WAYS[way]).fit(X, Y, sample_weight=S)
    assert_same(model, classifier(**WAYS[way]).fit(X, Y, sample_weight=S * factors(Y, S)[Y]))


@pytest.mark.filterwarnings("ignore")
def test_every_rung_of_a_climb_sees_them() -> None:
    x, y = photos()
    climb = {"backbone": convnet(), "solver": "auto", "effort": "standard", "size": 10, "minibatch": 6}
    model = classifier(class_weight="balanced", **climb).fit(x, y)
    other = classifier(**climb).fit(x, y, sample_weight=factors(y)[y])
    assert_same(model, other, x)
    tried = {rung["name"]: rung for rung in model.report_["rungs"]}
    assert all(tried[name]["error"] is not None for name in ("head", "LQF", "fine-tuned", "stack"))
    for rung, same in zip(model.report_["rungs"], other.report_["rungs"], strict=True):
        for name in ("error", "loss", "gain", "kept"):
            assert_close(rung[name], same[name])


@pytest.mark.parametrize("params", [{"solver": "head"}, {"solver": "dense", "head": "random"}], ids=["head", "dense"])
def test_a_class_of_weight_two_is_a_class_given_twice(params: dict[str, Any]) -> None:
    again = np.flatnonzero(Y == RARE)
    twice, groups = np.concatenate([np.arange(len(Y)), again]), [str(i) for i in (*range(len(Y)), *again)]
    model = classifier(class_weight={RARE: 2}, **params, **FIXED).fit(X, Y)
    other = classifier(**params, **FIXED).fit(X[twice], Y[twice], groups=groups)
    np.testing.assert_allclose(model.decision_function(X), other.decision_function(X), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), rtol=1e-8, atol=1e-8)
    loo, same = model.leave_one_out(), other.leave_one_out()
    np.testing.assert_allclose(loo.outputs, same.outputs[: len(Y)], rtol=1e-8, atol=1e-8)
    assert loo.error == pytest.approx(same.error)
    assert loo.balanced_error == pytest.approx(same.balanced_error)


def test_the_problem_and_its_curvature_carry_them() -> None:
    model = classifier(class_weight="balanced", **PCG, **FIXED).fit(X, Y)
    problem = reopen(model.fitted_, opened_again(model), Context(model.fitted_.settings, CPU))
    np.testing.assert_allclose(problem.quadratic.weights, factors(Y)[Y])
    other = classifier(**PCG, **FIXED).fit(X, Y, sample_weight=factors(Y)[Y])
    same = reopen(other.fitted_, opened_again(other), Context(other.fitted_.settings, CPU))
    v = torch.randn(len(model.fitted_.delta), dtype=torch.float64)
    found, expected = (p.curvature.solve(v, p.ridge) for p in (problem, same))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def opened_again(model: LQFClassifier) -> Any:
    """As `analyse` opens the training images."""
    samples = load_samples(X, Y, sample_weight=model.fitted_.train.weights, tensors="normalized")
    return open_images(samples, model.fitted_.preprocess)


# --- what they are ----------------------------------------------------------------------------------------------------


def test_balanced_weights_average_one_so_that_a_weight_decay_means_what_it_did() -> None:
    model = classifier(class_weight="balanced", **WAYS["dense"], **FIXED).fit(X, Y)
    weights = model.fitted_.train.weights
    assert weights.mean() == pytest.approx(1, rel=1e-14)
    assert np.bincount(Y, weights) == pytest.approx(len(Y) / 3)
    assert model.report_["ridge"]["head"] == pytest.approx(FIXED["weight_decay"] * len(Y))


def test_the_same_factor_for_all_classes_changes_nothing() -> None:
    model = classifier(class_weight=dict.fromkeys((0, 1, 2), 5.0), solver="head", weight_decay=0.1).fit(X, Y)
    other = classifier(solver="head", weight_decay=0.1).fit(X, Y)
    np.testing.assert_allclose(model.decision_function(X), other.decision_function(X), rtol=1e-10)


@pytest.mark.parametrize("key", ["2", 2, 2.0, np.int64(2), np.float32(2), np.str_("2")], ids=lambda k: type(k).__name__)
def test_classes_are_named_as_labels_are(key: Any) -> None:
    model = classifier(class_weight={key: np.float64(3)}, solver="head").fit(X, Y)
    assert model.fitted_.settings.class_weight == {"2": 3.0}
    assert model.report_["class_weights"] == {"0": 1.0, "1": 1.0, "2": 3.0}


def test_classes_that_there_are_not_are_refused_before_any_image_is_read(tmp_path: Path) -> None:
    (painted(tmp_path / "train") / "blue" / "0.png").write_text("no image")
    progress = Recorder()
    with pytest.raises(LQFError, match=r"names a class that the data do not have: `bleu`; they have `blue`, `green`$"):
        classifier(backbone=convnet(), class_weight={"bleu": 2}).fit(tmp_path / "train", progress=progress)
    assert not progress.said
    with pytest.raises(LQFError, match="names classes that the data do not have: `3`, `x`; they have `0`, `1`, `2`"):
        classifier(class_weight={3: 2, "x": 1, 0: 1}).fit(X, Y)


def test_images_that_cannot_be_read_do_not_count(tmp_path: Path) -> None:
    folder = painted(tmp_path / "train", 5)
    (folder / "blue" / "0.png").write_text("no image")
    model = classifier(backbone=convnet(), solver="head", size=16, class_weight="balanced").fit(folder)
    assert model.report_["class_weights"] == {"blue": 9 / 8, "green": 9 / 10}


def test_every_process_has_them() -> None:
    x, y = photos()
    whole = opened(x, y, SMALL)
    part = Shard(whole.samples, whole.hashes, (), range(4, 9), opened(x[4:9], y[4:9], SMALL))
    weights = np.linspace(1, 2, len(y))
    found = with_weights(part, weights)
    assert np.array_equal(found.samples.weights, weights)
    assert isinstance(found, Shard)
    assert np.array_equal(found.local.samples.weights, weights[4:9])
    assert torch.equal(found.batch([5]), whole.batch([5]))


# --- kept with the model ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["balanced", GIVEN])
def test_a_saved_model_has_them_and_asks_its_questions_with_them(given: Any, tmp_path: Path) -> None:
    model = classifier(class_weight=given, solver="head").fit(X, Y, sample_weight=S)
    model.save(tmp_path / "run")
    back = LQFClassifier.load(tmp_path / "run", backbone=model.backbone, device="cpu")
    assert back.class_weight == ("balanced" if given == "balanced" else {"0": 0.5, "2": 3.0})
    assert back.report_ == model.report_
    loo, again = model.leave_one_out(), back.analyse(X, Y).leave_one_out()
    np.testing.assert_allclose(again.outputs, loo.outputs, atol=1e-9)
    assert (again.error, again.temperature()) == (pytest.approx(loo.error), pytest.approx(model.fitted_.beta, rel=1e-6))
    assert_same(back.fit(X, Y, sample_weight=S), model)
    np.testing.assert_allclose(own_weights(model.fitted_), S, rtol=1e-14)


def test_another_weight_is_another_fit(tmp_path: Path) -> None:
    file, params = tmp_path / "fit.checkpoint", {**PCG, **FIXED, "loo": "none", "max_passes": 500}
    expected = classifier(class_weight={RARE: 2}, **params).fit(X, Y)
    with pytest.raises(KeyboardInterrupt):
        classifier(class_weight={RARE: 2}, **params).fit(X, Y, checkpoint=file, progress=Interrupting("solving", 3))
    assert file.exists()
    for other in ({"class_weight": {RARE: 3}}, {}, {"class_weight": {RARE: 2}, "choose_by": "classes"}):
        with pytest.raises(LQFError, match="belongs to a fit with other data or settings"):
            classifier(**params, **other).fit(X, Y, checkpoint=file, resume=True)
    resumed = classifier(class_weight={str(RARE): 2.0}, **params).fit(X, Y, checkpoint=file, resume=True)
    np.testing.assert_allclose(resumed.decision_function(X), expected.decision_function(X), atol=1e-6)


def test_a_climb_goes_on_with_the_same_weights_alone() -> None:
    quick = {"solver": "auto", "effort": "quick"}
    earlier = classifier(class_weight="balanced", **quick).fit(X, Y).fitted_
    again = classifier(class_weight="balanced", **quick).fit(X, Y, earlier=earlier)
    assert again.fitted_ is earlier
    with pytest.raises(LQFError, match=r"with other settings \(class_weight\)"):
        classifier(**quick).fit(X, Y, earlier=earlier)


# --- what is said -----------------------------------------------------------------------------------------------------


def said(x: np.ndarray, y: np.ndarray, sample_weight: Any = None, **params: Any) -> list[str]:
    progress = Recorder()
    classifier(solver="head", **params).fit(x, y, sample_weight, progress=progress)
    return [line for line in progress.said if "unequal" in line]


def test_very_unequal_classes_are_named_with_the_option_that_helps() -> None:
    x, y = vectors(few=3)
    (line,) = said(x, y)
    assert line.startswith("classes are very unequal (14 images of `0`, 3 of `2`); class_weight='balanced' ")
    assert not said(*vectors(few=4))  # 14 to 4 is not four times as many
    assert not said(x, y, class_weight="balanced")
    assert not said(x, y, class_weight={RARE: 2})
    assert not said(x, y, choose_by="classes")
    assert not said(x, y, factors(y)[y])  # weights that even them out
    assert said(x, y, np.where(y == 0, 2.0, 1.0))


def test_the_report_has_the_weights_of_the_classes_or_their_extremes() -> None:
    report = classifier(class_weight="balanced", solver="head").fit(X, Y).report_
    assert shown(report) == "0 0.762, 1 0.762, 2 2.67"
    assert report["weighted"]
    many = {"class_weights": {f"c{k}": 0.5 + k for k in range(9)}}
    assert shown(many) == "from 0.5 (c0) to 8.5 (c8)"
    plain = classifier(solver="head").fit(X, Y).report_
    assert (plain["class_weights"], plain["weighted"], shown(plain)) == (None, False, "")
    assert classifier(solver="head").fit(X, Y, sample_weight=S).report_["weighted"]


def test_what_is_compared_with_test_images_leaves_them_out() -> None:
    model = classifier(class_weight="balanced", solver="head").fit(X, Y)
    loo = model.leave_one_out()
    plain = as_they_come(model.fitted_, loo)
    wrong = (loo.predicted != loo.labels).double()
    assert plain.error == pytest.approx(float(wrong.mean()))
    assert loo.error == pytest.approx(np.mean([float(wrong[loo.labels == k].mean()) for k in range(3)]))
    assert plain.error != loo.error
    assert loo.balanced_error == pytest.approx(loo.error) == pytest.approx(plain.balanced_error)


def test_without_class_weights_there_are_none() -> None:
    samples = load_samples(X, Y, tensors="normalized")
    assert class_weights(None, samples) is None
    assert class_weights({}, samples) == {"0": 1.0, "1": 1.0, "2": 1.0}
    assert about_unequal(samples, Settings(class_weight={})) == ""
