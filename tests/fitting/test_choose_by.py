"""With choose_by "classes" every choice counts every class alike, and what is minimised stays as it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fits import CPU, FIXED, SMALL, classifier, convnet, opened
from lqf import LQFClassifier
from lqf.backbones import load_backbone
from lqf.evaluation.balance import balanced
from lqf.evaluation.calibration import calibrate
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.evaluation.paired import cross_fitted_losses
from lqf.evaluation.stacking import stack_coefficients
from lqf.fitting import Context, TrainingSet
from lqf.fitting.rungs.rung import Attempt, Ground
from lqf.fitting.rungs.stack import _cross_fitted, _members
from lqf.linear.targets import error_rate
from lqf.settings import Settings
from unequal import RARE, balanced_loss, photos, vectors

X, Y = vectors()
LABELS = torch.tensor(Y)
ONES = torch.ones(len(Y), dtype=torch.float64)
ALIKE = balanced(ONES, LABELS)


def class_mean_error(loo: LeaveOneOut) -> float:
    wrong = (loo.predicted != loo.labels).double()
    return float(torch.stack([wrong[loo.labels == k].mean() for k in loo.labels.unique()]).mean())


@pytest.mark.parametrize("solver", ["head", "dense"])
def test_the_objective_and_its_errors_stay_and_the_temperature_counts_classes(solver: str) -> None:
    plain = classifier(solver=solver, **FIXED).fit(X, Y)
    model = classifier(solver=solver, choose_by="classes", **FIXED).fit(X, Y)
    np.testing.assert_array_equal(model.decision_function(X), plain.decision_function(X))
    assert torch.equal(model.leave_one_out().outputs, plain.leave_one_out().outputs)
    for name in ("loo_error", "loo_standard_error", "loo_balanced_error", "head_loo_error"):
        assert model.report_[name] == plain.report_[name]
    assert model.report_["loo_error"] != model.report_["loo_balanced_error"]
    outputs = plain.leave_one_out().outputs
    assert plain.fitted_.beta == calibrate(outputs, LABELS, ONES)
    assert model.fitted_.beta == calibrate(outputs, LABELS, ALIKE) != plain.fitted_.beta


@pytest.mark.parametrize("choose_by", ["images", "classes"])
def test_a_weight_decay_is_chosen_by_the_mean_of_the_classes(choose_by: str) -> None:
    model = classifier(solver="head", choose_by=choose_by).fit(X, Y)
    (choice,) = model.report_["choices"]
    assert choice["kept"] == min(choice["tried"], key=lambda t: t["loss"])["weight_decay"]
    for tried in choice["tried"][::6]:
        loo = classifier(solver="head", weight_decay=tried["weight_decay"]).fit(X, Y).leave_one_out()
        if choose_by == "classes":
            assert tried["loss"] == pytest.approx(balanced_loss(loo.outputs, LABELS), rel=1e-3)
            assert tried["loo_error"] == pytest.approx(class_mean_error(loo))
        else:
            assert tried["loo_error"] == pytest.approx(loo.error)


def test_another_weight_decay_is_kept_where_the_classes_want_another() -> None:
    kept = [classifier(solver="head", choose_by=by).fit(X, Y) for by in ("images", "classes")]
    assert kept[0].report_["weight_decay"] != kept[1].report_["weight_decay"]
    losses = [balanced_loss(model.leave_one_out().outputs, Y) for model in kept]
    assert losses[1] < losses[0]


@pytest.mark.parametrize(
    "params", [{"solver": "dense"}, {"solver": "dense", "strengths": "stages"}], ids=["one", "stages"]
)
def test_strengths_of_the_body_are_chosen_by_it_too(params: dict[str, Any]) -> None:
    plain, model = (classifier(choose_by=by, **params).fit(X, Y).report_ for by in ("images", "classes"))
    assert plain["ridge"] != model["ridge"]


def test_classes_of_one_size_are_chosen_for_as_ever() -> None:
    few = np.concatenate([np.flatnonzero(Y == k)[:4] for k in range(3)])
    plain, model = (classifier(solver="dense", choose_by=by).fit(X[few], Y[few]) for by in ("images", "classes"))
    assert plain.report_["choices"] == model.report_["choices"]
    np.testing.assert_array_equal(plain.predict_proba(X), model.predict_proba(X))


def test_balanced_class_weights_choose_by_classes_already() -> None:
    images, classes = (
        classifier(solver="dense", class_weight="balanced", choose_by=by).fit(X, Y) for by in ("images", "classes")
    )
    assert images.report_["weight_decay"] == pytest.approx(classes.report_["weight_decay"], rel=1e-12)
    np.testing.assert_allclose(images.predict_proba(X), classes.predict_proba(X), rtol=1e-9)


def test_a_class_with_one_image_takes_no_part() -> None:
    x, y = vectors(few=1)
    model = classifier(solver="head", choose_by="classes").fit(x, y)
    others = torch.tensor(y) != RARE
    outputs = model.leave_one_out().outputs[others]
    (choice,) = model.report_["choices"]
    kept = min(choice["tried"], key=lambda t: t["loss"])
    assert kept["loss"] == pytest.approx(balanced_loss(outputs, y[others.numpy()]), rel=1e-3)


# --- rungs of a climb -------------------------------------------------------------------------------------------------

PX, PY = photos(few=4)
N = len(PY)


def ground(found: list[torch.Tensor], choose_by: str) -> Ground:
    """After attempts that gave these outputs."""
    settings = Settings(dtype="float64", choose_by=choose_by)
    data = TrainingSet.of(opened(PX, PY, SMALL), SMALL, Context(settings, CPU))
    names = ("head, 8 views", "LQF", "LQF, moved")
    made = {n: Attempt(n, o, lambda: None, {}) for n, o in zip(names, found, strict=False)}
    return Ground(data, load_backbone(convnet()), SimpleNamespace(), made, {}, names[0])


def outputs(seed: int, rare: float = 1.0) -> torch.Tensor:
    """(N, 3) that see the labels through noise, and the rare class ``rare`` times as well."""
    labels = torch.tensor(PY)
    signal = torch.where(labels == RARE, rare, 1.0)[:, None] * torch.nn.functional.one_hot(labels, 3)
    return 2 * signal + torch.randn(N, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_a_gain_is_the_mean_of_the_classes_gains() -> None:
    one, two = outputs(0), outputs(1, rare=3.0)
    at = ground([one, two], "classes")
    labels, folds = torch.tensor(PY), at.data.folds
    weights = balanced(torch.ones(N, dtype=torch.float64), labels)
    before, after = (cross_fitted_losses(o, labels, weights, folds) for o in (one, two))
    per_class = [float((before - after)[labels == k].mean()) for k in range(3)]
    assert at.gain(two, one).mean == pytest.approx(np.mean(per_class))
    assert at.gain(two, one).mean != pytest.approx(ground([one, two], "images").gain(two, one).mean)


def test_a_stack_is_weighed_by_classes() -> None:
    found = [outputs(0), outputs(1, rare=3.0)]
    at, labels = ground(found, "classes"), torch.tensor(PY)
    weights = balanced(torch.ones(N, dtype=torch.float64), labels)
    attempts = list(at.attempts.values())
    torch.testing.assert_close(_members(attempts, at)[1], stack_coefficients(found, labels, weights))
    fold = at.data.folds == 0
    c = stack_coefficients([o[~fold] for o in found], labels[~fold], weights[~fold])
    expected = sum(w * o[fold] for w, o in zip(c / c.sum(), found, strict=True))
    torch.testing.assert_close(_cross_fitted(attempts, at)[fold], expected)
    plain = ground(found, "images")
    assert not torch.allclose(_members(attempts, plain)[1], _members(attempts, at)[1])


def test_the_table_of_a_climb_has_what_it_went_by_and_its_error_counts_images() -> None:
    model = classifier(solver="auto", effort="quick", choose_by="classes").fit(X, Y)
    rung = model.report_["rungs"][0]
    left_out = model.fitted_.tried["head"]
    assert rung["error"] == pytest.approx(error_rate(left_out, LABELS, ALIKE))
    assert rung["error"] != pytest.approx(error_rate(left_out, LABELS))
    assert model.report_["error"] == pytest.approx(error_rate(left_out, LABELS))
    assert model.report_["balanced_error"] == pytest.approx(rung["error"])
    assert model.fitted_.beta == calibrate(model.leave_one_out().outputs, LABELS, ALIKE)


# --- kept -------------------------------------------------------------------------------------------------------------


def test_a_saved_model_knows_what_it_was_chosen_by(tmp_path: Path) -> None:
    model = classifier(solver="head", choose_by="classes").fit(X, Y)
    model.save(tmp_path / "run")
    back = LQFClassifier.load(tmp_path / "run", backbone=model.backbone, device="cpu")
    assert back.choose_by == back.report_["choose_by"] == "classes"
    assert back.leave_one_out().temperature() == model.fitted_.beta
    assert back.analyse(X, Y).leave_one_out().temperature() == pytest.approx(model.fitted_.beta, rel=1e-6)
