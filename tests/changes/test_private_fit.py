"""A private model straight from the estimator: the same as a fit and its release, chosen without the images."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fits import classifier, convnet, data, network, photos, pictures
from lqf import LQFClassifier
from lqf.errors import LQFError
from lqf.fitting import FittedModel, Stack
from stacks import stacked

X, Y = data(18, 3)
NEW = data(5, 3, seed=3)[0]
BUDGET = {"epsilon": 4.0, "delta": 1e-3}


def private(**given: Any) -> LQFClassifier:
    """By the defaults of everything else, for images of any kind."""
    return LQFClassifier(network(), tensors="normalized", device="cpu", verbose=0, **BUDGET | given)


@pytest.fixture
def noiseless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.changes.privacy.release.normal", lambda size, seed: torch.zeros(size, dtype=torch.float64))


@pytest.mark.usefixtures("noiseless")
def test_it_is_the_release_of_a_fit_that_chose_nothing_by_the_images() -> None:
    one = private(dtype="float64").fit(X, Y)
    two = classifier(solver="head", views="none").fit(X, Y).privatise(**BUDGET, train=X, y=Y)
    np.testing.assert_allclose(one.decision_function(NEW), two.decision_function(NEW), rtol=0, atol=1e-9)
    privacy = one.report_["privacy"]
    assert privacy["not_private"] == []
    assert privacy | {"noise": 0} == two.report_["privacy"] | {"noise": 0}
    assert one.fitted_.loo is None
    assert one.fitted_.train.ids == ()


@pytest.mark.usefixtures("noiseless")
def test_with_the_dense_solver_it_is_the_whole_model_and_its_point_is_named() -> None:
    fixed = {"weight_decay": 0.1, "body_weight_decay": 0.2}
    one = private(solver="dense", **fixed).fit(X, Y)
    two = classifier(solver="dense", views="none", **fixed).fit(X, Y)
    two.privatise(**BUDGET, part="all", train=X, y=Y)
    np.testing.assert_allclose(one.decision_function(NEW), two.decision_function(NEW), rtol=0, atol=1e-9)
    assert "linearisation point" in one.report_["privacy"]["not_private"][0]


def test_there_is_noise_and_a_loaded_model_keeps_its_budget(tmp_path: Path) -> None:
    one, two = (private().fit(X, Y) for _ in range(2))
    assert not np.array_equal(one.decision_function(NEW), two.decision_function(NEW))
    assert one.report_["privacy"]["secure_noise"]
    one.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=network())
    assert (loaded.epsilon, loaded.delta) == (4.0, 1e-3)
    again = loaded.fit(X, Y)
    assert again.report_["privacy"]["epsilon"] == 4.0


def test_what_is_not_private_is_named(tmp_path: Path) -> None:
    photos(tmp_path, 6, classes=("blue", "green"))
    shown = {"backbone": convnet(), "size": 32, "device": "cpu", "verbose": 0, **BUDGET}
    model = LQFClassifier(**shown).fit(tmp_path)
    assert model.report_["privacy"]["not_private"] == []
    assert (model.report_["pooling"], model.report_["views"]) == ("avg", "none")
    named = LQFClassifier(**shown, views="flip", pooling="bilinear", pool_channels=3).fit(tmp_path)
    assert named.report_["privacy"]["not_private"] == ["the principal channels of the pooling"]
    assert named.report_["views"] == "flip"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no delta": ({"delta": None}, "epsilon was given without delta"),
    "no epsilon": ({"epsilon": None}, "delta was given without epsilon"),
    "no budget": ({"epsilon": -1.0}, "epsilon is -1.0"),
    "delta of an image": ({"delta": 0.06}, "with 18 images publishing one of them"),
    "another solver": ({"solver": "pcg"}, "a private fit has solver `head` or `dense`"),
    "a moved network": ({"relinearize": 1}, "leaves the network as it is"),
    "a climb": ({"effort": "best"}, "leave out effort and time_limit"),
    "form": ({"solver": "dense", "form": "w0"}, "form centred and dtype float64"),
    "class weights": ({"class_weight": "balanced"}, "fit without weights and class weights"),
    "constraints": ({"constraints": ["any"]}, "not both"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_has_no_proof_is_refused_before_anything_is_fitted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("fitted")

    monkeypatch.setattr("lqf.estimator.classifier.fit_model", refuse)
    given, sentence = BAD[name]
    model = private(**given)
    with pytest.raises(LQFError, match=sentence):
        model.fit(X, Y)
    assert not hasattr(model, "fitted_")


def test_weights_are_refused_and_a_failed_release_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LQFError, match="weight 1"):
        private().fit(X, Y, np.arange(18) + 1.0)

    def fail(*_: Any) -> None:
        raise LQFError("nothing was released")

    monkeypatch.setattr("lqf.estimator.constraining.privatise", fail)
    model = private()
    with pytest.raises(LQFError, match="nothing was released"):
        model.fit(X, Y)
    assert not hasattr(model, "fitted_")


@pytest.fixture(scope="module")
def stack() -> LQFClassifier:
    """Of heads on one view, on two, and on one again."""
    x, y = pictures(16)
    shown = {"backbone": convnet(), "solver": "head", "size": 8}
    models = {v: classifier(**shown, views=v.split()[0]).fit(x, y) for v in ("none", "flip", "none again")}
    return models["none"].with_model(stacked(models, (0.5, 0.3, 0.2)))


def test_the_heads_of_a_stack_share_a_budget(stack: LQFClassifier, tmp_path: Path) -> None:
    x, y = pictures(16)
    model = stack.with_model(stack.fitted_).privatise(**BUDGET, train=x, y=y)
    released = model.fitted_
    assert isinstance(released, Stack)
    assert released.names == ("none", "flip")
    assert released.weights == (0.5, 0.5)
    one = stack.with_model(stack.fitted_.members[0]).privatise(**BUDGET, weight_decay=0.3, train=x, y=y)
    both = stack.with_model(stack.fitted_).privatise(**BUDGET, weight_decay=0.3, train=x, y=y)
    noise = one.report_["privacy"]["noise"]
    for member in both.fitted_.members:
        assert member.report.privacy["noise"] == pytest.approx(math.sqrt(2) * noise)
    assert "the choice of the members" in model.report_["privacy"]["not_private"]
    assert model.report_["privacy"]["members"] == 2
    model.save(tmp_path / "run")
    held = b"".join(p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.suffix in (".csv", ".json", ".md"))
    assert not any(h.encode() in held for h in stack.fitted_.train.hashes)
    again = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    np.testing.assert_array_equal(again.decision_function(x), model.decision_function(x))
    with pytest.raises(LQFError, match="released with noise"):
        again.leave_one_out()


@pytest.mark.usefixtures("noiseless")
def test_without_noise_a_released_stack_is_the_mean_of_its_heads(stack: LQFClassifier) -> None:
    x, y = pictures(16)
    given = {**BUDGET, "weight_decay": 0.3, "train": x, "y": y}
    model = stack.with_model(stack.fitted_).privatise(**given)
    alone = [stack.with_model(m).privatise(**given).decision_function(x) for m in stack.fitted_.members[:2]]
    np.testing.assert_allclose(model.decision_function(x), np.mean(alone, 0), atol=1e-9)


def test_heads_of_one_kind_are_released_once_and_networks_not_at_all(stack: LQFClassifier) -> None:
    x, y = pictures(16)
    same = replace(stack.fitted_, members=stack.fitted_.members[::2], weights=(0.6, 0.4), names=("a", "b"))
    same = replace(same, shares=same.weights)
    assert isinstance(stack.with_model(same).privatise(**BUDGET, train=x, y=y).fitted_, FittedModel)
    with pytest.raises(LQFError, match="of a stack the heads are released"):
        stack.with_model(stack.fitted_).privatise(**BUDGET, part="all", train=x, y=y)
    member = same.members[0]
    spec = member.backbone.spec | {"moved": {"steps": [1.0]}}
    moved = replace(member, backbone=replace(member.backbone, spec=spec))
    with pytest.raises(LQFError, match="trained on the images, without privacy"):
        stack.with_model(replace(same, members=(moved, member))).privatise(**BUDGET, train=x, y=y)
