"""One image of a class: leaving it out says nothing, so it judges nothing, and where all are alone priors decide."""

from typing import Any

import numpy as np
import pytest
import torch

from fits import CPU, SMALL, classifier, convnet, pictures
from lqf.backbones import load_backbone
from lqf.data import load_samples, open_images
from lqf.errors import LQFError
from lqf.evaluation.calibration import fit_temperature
from lqf.fitting import Context, HeadFit, TrainingSet
from lqf.fitting.encoder import Encoder
from lqf.fitting.head_fit import PRIOR_STRENGTH
from lqf.fitting.out_of_sample import PRIOR_SPREAD
from lqf.linear.targets import error_rate
from lqf.settings import Settings
from recorder import Recorder

N = 13
X = pictures(N)[0]
ONE_AMONG_OTHERS = np.array([0, 1] * 6 + [2])
SOLVERS: dict[str, dict[str, Any]] = {
    "a climb": {"solver": "auto"},
    "head": {"solver": "head"},
    "dense": {"solver": "dense"},
    "pcg": {"solver": "pcg"},
}


def training_set(y: np.ndarray, groups: Any = None, views: str = "none") -> TrainingSet:
    images = open_images(load_samples(X[: len(y)], y, groups=groups), SMALL)
    return TrainingSet.of(images, SMALL, Context(Settings(solver="head", views=views, dtype="float64"), CPU))


def fitted(y: np.ndarray, progress: Recorder | None = None, **params: Any) -> Any:
    model = classifier(**{"backbone": convnet(), "size": 8, "views": "none", **params})
    return model.fit(X[: len(y)], y, progress=progress or Recorder())


@pytest.mark.parametrize("views", ["none", "flip"])
def test_a_sample_is_single_where_its_class_has_no_other_group(views: str) -> None:
    y = np.array([0, 0, 1, 2, 2])
    assert training_set(y, views=views).single.tolist() == [False, False, True, False, False]
    grouped = training_set(y, ["a", "b", "c", "d", "d"], views)
    assert grouped.single.tolist() == [False, False, True, True, True]
    assert not grouped.alone
    assert training_set(y, ["a", "a", "c", "d", "d"], views).alone
    assert training_set(np.arange(3), views=views).alone
    assert not training_set(np.array([0, 1, 0, 1]), views=views).single.any()


def test_the_rest_of_a_training_set_knows_its_own() -> None:
    data = training_set(np.array([0, 0, 1, 1]))
    assert not data.single.any()
    assert data.some(np.array([True, True, True, False])).single.tolist() == [False, False, True]
    assert data.some(np.array([True, False, True, False])).alone


@pytest.mark.parametrize("solver", SOLVERS)
def test_one_image_of_every_class_is_fitted_with_priors(solver: str) -> None:
    progress = Recorder()
    model = fitted(np.arange(3), progress, **SOLVERS[solver])
    assert any("nothing can be left out" in sentence for sentence in progress.said)
    report = model.report_
    assert report["loo_error"] is None
    assert report["error"] is None
    with pytest.raises(LQFError, match="leave-one-out is not known"):
        model.leave_one_out()
    assert model.fitted_.beta == PRIOR_SPREAD / 15
    np.testing.assert_array_equal(model.predict(X[:3]), np.arange(3))
    assert np.isfinite(model.predict_proba(X)).all()


def test_the_strength_is_the_prior_s_in_units_of_the_kernel() -> None:
    data = training_set(np.arange(3))
    encoder = Encoder(data, load_backbone(convnet()))
    head = HeadFit.of(encoder, "avg", encoder.features())
    mean_eigenvalue = float((head.features.square().sum(1) + 1).mean())
    assert head.choice.mu == pytest.approx(PRIOR_STRENGTH * mean_eigenvalue)
    given = fitted(np.arange(3), solver="head", weight_decay=0.2)
    assert given.report_["ridge"]["head"] == pytest.approx(0.6)


def test_groups_of_one_class_each_are_one_image_each() -> None:
    model = classifier(backbone=convnet(), size=8, solver="head")
    progress = Recorder()
    model.fit(X[:6], np.arange(6) // 2, groups=np.arange(6) // 2, progress=progress)
    assert any("has one group: nothing can be left out" in sentence for sentence in progress.said)
    assert model.report_["loo_error"] is None


def test_a_class_with_one_image_does_not_judge_the_strength() -> None:
    data = training_set(ONE_AMONG_OTHERS)
    encoder = Encoder(data, load_backbone(convnet()))
    choice = HeadFit.of(encoder, "avg", encoder.features()).choice
    outputs, others, labels = data.judge.outputs(choice.e_loo), ~data.single, data.labels
    assert int(others.sum()) == 12
    assert choice.best.loss == pytest.approx(fit_temperature(outputs[others], labels[others])[1], rel=1e-9)
    assert choice.best.error == pytest.approx(error_rate(outputs[others], labels[others]))
    every = fit_temperature(outputs, labels)[1]
    assert every > 1.01 * choice.best.loss  # it would have a say


def test_a_class_with_one_image_among_others_is_said_and_not_counted() -> None:
    progress = Recorder()
    model = fitted(ONE_AMONG_OTHERS, progress, solver="auto", effort="quick")
    (sentence,) = (s for s in progress.said if s.startswith("classes with one image"))
    assert "`2`" in sentence
    rungs = [r for r in model.report_["rungs"] if r["error"] is not None]
    tried = model.fitted_.tried
    labels = torch.tensor(ONE_AMONG_OTHERS)
    for rung in rungs:
        assert rung["error"] == pytest.approx(error_rate(tried[rung["name"]][:12], labels[:12]))
    assert model.report_["error"] * 12 == pytest.approx(round(model.report_["error"] * 12))
    scores = model.decision_function(X)[:, 2]
    assert scores.argmax() == 12  # it is learned like all others
