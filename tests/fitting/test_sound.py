"""A model is finite and solved, or refused; what floating point cannot hold is refused beforehand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fits import classifier, data, network
from lqf import LQFClassifier
from lqf.errors import LQFError
from lqf.fitting.finite import check_outputs
from recorder import Recorder

X, Y = data(18)
NEW = data(8, seed=1)[0]


@pytest.mark.parametrize("weight", [1e-300, 1e-12, 1e300, 1e38])
@pytest.mark.parametrize("solver", ["head", "dense"])
def test_weights_that_floating_point_cannot_hold_are_refused(weight: float, solver: str) -> None:
    weights = np.ones(len(X))
    weights[3] = weight
    with pytest.raises(LQFError, match=r"sample weights run from .*`3`.*weight 0"):
        classifier(solver=solver).fit(X, Y, sample_weight=weights)


@pytest.mark.parametrize("scale", [1e-17, 1e17])
@pytest.mark.parametrize("solver", ["head", "dense", "pcg"])
def test_weights_near_the_limits_are_solved(scale: float, solver: str) -> None:
    weights = np.full(len(X), scale)
    weights[::2] *= 1e-8 if scale > 1 else 1e8
    model = classifier(solver=solver, loo="none").fit(X, Y, sample_weight=weights)
    assert model.report_["converged"]
    assert np.isfinite(model.decision_function(NEW)).all()


def test_strengths_too_far_apart_are_refused() -> None:
    with pytest.raises(LQFError, match="further apart than floating point can hold"):
        classifier(solver="dense", weight_decay=1.0, body_weight_decay=1e-12).fit(X, Y)


@pytest.mark.parametrize("decay", [1e-12, 1e-9, 1e9, 1e12])
@pytest.mark.parametrize("solver", ["head", "dense", "pcg"])
def test_extreme_strengths_are_solved_or_refused(decay: float, solver: str) -> None:
    try:
        model = classifier(solver=solver, weight_decay=decay, body_weight_decay=decay, loo="none").fit(X, Y)
    except LQFError as error:
        said = str(error)
        assert "give" in said
        return
    assert model.report_["converged"]
    assert np.isfinite(model.decision_function(NEW)).all()


def test_identical_images_are_refused() -> None:
    same = np.repeat(X[:1], len(X), axis=0)
    for solver in ("head", "dense", "auto"):
        with pytest.raises(LQFError, match="sees no difference between the 18 images"):
            classifier(solver=solver).fit(same, Y)


def test_copies_within_a_class_are_fitted() -> None:
    copies = np.stack([X[y] for y in Y])
    model = classifier(solver="dense").fit(copies, Y)
    assert model.report_["converged"]
    assert list(model.predict(copies)) == list(Y)


def test_what_did_not_converge_is_not_exact_and_says_so(tmp_path: Path) -> None:
    model = classifier(solver="pcg", tol=1e-12, max_passes=3, unconverged="keep", loo="none").fit(X, Y)
    assert model.report_["level"] != "exact"
    said = Recorder()
    model.predict(NEW, progress=said)
    assert any("did not reach its optimum" in line for line in said.said)
    model.save(tmp_path / "run")
    said = Recorder()
    LQFClassifier.load(tmp_path / "run", backbone=network()).predict(NEW, progress=said)
    assert any("did not reach its optimum" in line for line in said.said)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_saved_model_that_is_not_finite_is_refused(tmp_path: Path, value: float) -> None:
    model = classifier(solver="head").fit(X, Y)
    model.fitted_ = replace(model.fitted_, head=torch.full_like(model.fitted_.head, value))
    model.save(tmp_path / "run")
    with pytest.raises(LQFError, match="not finite"):
        LQFClassifier.load(tmp_path / "run", backbone=network())
    with pytest.raises(LQFError, match="not a finite number"):
        model.predict(NEW)


def test_inputs_that_are_not_finite_are_refused() -> None:
    with pytest.raises(LQFError, match="`b` is not a finite number"):
        check_outputs(torch.tensor([[0.0], [float("nan")]]), ["a", "b"])
