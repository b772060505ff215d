"""Fits of one named model whose predictions average over fewer views than were trained on."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dense import optimum, ridge_regression
from fits import CPU, FIXED, brute_outputs, classifier, convnet, data, pictures
from lqf import LQFClassifier
from lqf.data import load_samples, normalize, open_images
from lqf.errors import LQFError
from lqf.evaluation.calibration import calibrate
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import Context
from lqf.fitting.reopen import reopen
from lqf.linear.problem import QuadraticProblem
from real_refits import without_each_fold

N = 12
X, Y = pictures(N, side=12)
NEW = pictures(5, side=12, seed=7)[0]
S = np.random.default_rng(0).uniform(0.5, 2, N)
TIGHT = {"rtol": 1e-8, "atol": 1e-8}
KEPT = {"unconverged": "keep"}
"""Forty passes are not enough for these small problems, and what is compared does not depend on it."""
COUNTS = {"none": 1, "flip": 2, "same": 4, "auto": 4}
pytestmark = pytest.mark.usefixtures("one_thread")
fewer = pytest.mark.parametrize("shown", ["none", "flip"])


@cache
def fitted(shown: str, views: str = "crops4", **params: Any) -> LQFClassifier:
    """Twelve weighted pictures of three classes."""
    given = {"backbone": convnet(), "size": 8, "views": views, "pooling": "avg", **FIXED, **KEPT, **params}
    return classifier(predict_views=shown, **given).fit(X, Y, S)


def problem_of(model: LQFClassifier) -> tuple[QuadraticProblem, Tensor]:
    """What was solved, over all views that were trained on, and the folds of its rows."""
    fitted = model.fitted_
    samples = load_samples(X, Y, sample_weight=S)
    problem = reopen(fitted, open_images(samples, fitted.trained_on), Context(fitted.settings, CPU))
    return problem.quadratic, problem.data.folds


def averaged(rows: Tensor, shown: str) -> Tensor:
    return rows.view(N, 4, -1)[:, : COUNTS[shown]].mean(1)


def inputs_of(model: LQFClassifier, view: int) -> Tensor:
    """New pictures in one of the views that were trained on."""
    preprocess = model.fitted_.trained_on
    return normalize(open_images(load_samples(NEW), preprocess).batch(range(5), view), preprocess, torch.float64)


# --- predictions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", ["none", "flip", "same", "auto"])
def test_a_prediction_is_the_mean_over_these_views(shown: str) -> None:
    model = fitted(shown)
    problem, _ = problem_of(model)
    assert len(problem.targets) == 4 * N
    views = [brute_outputs(problem, optimum(problem), inputs_of(model, v)) for v in range(COUNTS[shown])]
    np.testing.assert_allclose(model.decision_function(NEW), torch.stack(views).mean(0), **TIGHT)
    if shown not in ("same", "auto"):
        assert not np.allclose(model.decision_function(NEW), fitted("same").decision_function(NEW), atol=1e-2)


@pytest.mark.parametrize("solver", ["head", "dense", "pcg", "sgd"])
@fewer
def test_every_solver_solves_the_problem_of_all_views(solver: str, shown: str) -> None:
    how = {"epochs": 2, "minibatch": 5} if solver == "sgd" else {}
    body = {"body_weight_decay": "auto"} if solver == "head" else {}
    model, whole = (fitted(views, solver=solver, **how, **body) for views in (shown, "same"))
    a, b = model.fitted_, whole.fitted_
    for name in ("head", "point", "delta"):
        assert torch.equal(getattr(a, name), getattr(b, name))
    assert (a.preprocess.views, a.trained_on.views, a.report.views) == (shown, "crops4", "crops4")
    assert (a.report.predict_views, b.report.predict_views) == (shown, None)
    assert b.preprocess.views == b.trained_on.views == "crops4"


def test_without_a_wish_it_is_as_ever() -> None:
    auto, same = fitted("auto"), fitted("same")
    np.testing.assert_array_equal(auto.decision_function(NEW), same.decision_function(NEW))
    assert torch.equal(auto.leave_one_out().outputs, same.leave_one_out().outputs)
    times = ("stages", "seconds", "plan", "history")
    a, b = ({k: v for k, v in m.report_.items() if k not in times} for m in (auto, same))
    assert a == b


def test_the_views_that_were_trained_on_are_all_of_them() -> None:
    asked, plain = fitted("flip", "flip"), fitted("same", "flip")
    np.testing.assert_array_equal(asked.decision_function(NEW), plain.decision_function(NEW))
    assert torch.equal(asked.leave_one_out().outputs, plain.leave_one_out().outputs)
    assert asked.report_["predict_views"] is None
    assert asked.fitted_.trained_views is None


# --- leave-one-out ----------------------------------------------------------------------------------------------------


@fewer
def test_leave_one_out_is_refitting_without_the_sample_and_showing_it_in_these_views(shown: str) -> None:
    model = fitted(shown)
    problem, _ = problem_of(model)
    loo, of_row = model.leave_one_out(), torch.arange(N).repeat_interleave(4)
    for i in range(N):
        rows = problem.targets - problem.residuals(optimum(problem, of_row != i))
        torch.testing.assert_close(loo.outputs[i], averaged(rows, shown)[i], **TIGHT)
    assert (loo.level, loo.note) == ("exact", "")
    assert model.report_["loo_error"] == loo.error
    assert model.fitted_.beta == pytest.approx(calibrate(loo.outputs, torch.tensor(Y), torch.tensor(S)))


@fewer
def test_leave_one_out_of_the_head(shown: str) -> None:
    model = fitted(shown, solver="head", weight_decay=0.1, body_weight_decay="auto")
    problem, _ = problem_of(model)
    z = torch.cat([problem.model.body.value(problem.inputs.fetch(torch.arange(4 * N))), torch.ones(4 * N, 1)], 1)
    of_row, r, s = torch.arange(N).repeat_interleave(4), problem.targets - problem.model.constant, problem.weights
    for i in range(N):
        keep = of_row != i
        v = ridge_regression(z[keep], r[keep], s[keep], 0.1 * S.sum())
        expected = averaged(problem.model.constant + z @ v, shown)[i]
        torch.testing.assert_close(model.leave_one_out().outputs[i], expected, **TIGHT)
    assert model.report_["loo_error"] == model.report_["head_loo_error"]


def test_refits_without_a_fold_show_it_in_these_views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.fitting.refits.REFIT_PRODUCTS", 400)
    monkeypatch.setattr("lqf.fitting.refits.REFIT_TOL", 1e-9)
    model = fitted.__wrapped__("flip", solver="pcg", loo="folds")
    problem, fold = problem_of(model)
    expected = averaged(without_each_fold(problem, fold, model.report_["point_ridge"]), "flip")
    torch.testing.assert_close(model.leave_one_out().outputs, expected, rtol=1e-6, atol=1e-6)


def test_replays_of_a_moved_network_show_a_fold_in_these_views() -> None:
    given = {"relinearize": 1, "body_weight_decay": 30.0, "loo": "folds"}
    assert "from the pretrained weights on" in of_picture_and_mirror_image(**given)


def test_rough_leave_one_out_is_averaged_over_these_views() -> None:
    note = of_picture_and_mirror_image(solver="pcg", loo="kernel", tol=1e-8)
    assert note == "roughly, by the kernel averaged over the outputs"


def of_picture_and_mirror_image(**params: Any) -> str:
    """What a picture and its mirror image say alone, out of sample, has what they say together as its mean."""
    x = pictures(N, side=16)[0]  # cut out in the middle, as they are

    def loo(shown: str, x: np.ndarray) -> LeaveOneOut:
        given = {"backbone": convnet(), "size": 14, "views": "flip", "pooling": "avg", **FIXED, **KEPT, **params}
        return classifier(predict_views=shown, **given).fit(x, Y, S).leave_one_out()

    both, one, other = loo("same", x), loo("none", x), loo("none", x[:, :, ::-1].copy())
    torch.testing.assert_close((one.outputs + other.outputs) / 2, both.outputs, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(one.outputs, both.outputs, atol=1e-3)
    assert one.note == both.note
    return one.note


def test_the_bias_of_a_point_is_measured_in_these_views() -> None:
    x = np.random.default_rng(3).integers(0, 255, (N, 12, 12, 3)).astype(np.uint8)  # nothing to be learnt

    def fit(shown: str, head: str) -> LQFClassifier:
        given = {"backbone": convnet(), "size": 8, "views": "crops4", "pooling": "avg", "head": head}
        return classifier(predict_views=shown, weight_decay=1e-3, body_weight_decay=1e-3, **given).fit(x, Y)

    bias = {
        s: 100 * (fit(s, "crossfit").leave_one_out().error - fit(s, "probe").leave_one_out().error)
        for s in ("none", "same")
    }
    assert abs(bias["none"] - bias["same"]) > 1  # or the test would say nothing
    assert f"flatters it by about {bias['none']:.1f} points" in fit("none", "probe").report_["loo_note"]


@fewer
def test_the_head_that_is_compared_with_is_shown_in_the_same_views(shown: str) -> None:
    model = fitted(shown, weight_decay=1e-3)
    head = fitted(shown, solver="head", weight_decay=1e-3, body_weight_decay="auto")
    assert model.report_["head_loo_error"] == head.leave_one_out().error


def test_a_temperature_that_comes_from_kernels_is_that_of_these_views() -> None:
    given = {"solver": "pcg", "loo": "none", "weight_decay": "auto", "body_weight_decay": "auto"}
    model, kernel = fitted("none", **given), fitted("none", **{**given, "loo": "kernel"})
    assert model.fitted_.loo is None
    loo = kernel.leave_one_out()
    assert model.fitted_.beta == pytest.approx(calibrate(loo.outputs, torch.tensor(Y), torch.tensor(S)))
    assert model.fitted_.beta != pytest.approx(fitted("same", **given).fitted_.beta, rel=1e-3)


# --- afterwards -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["head", "dense", "pcg"])
def test_an_analysis_shows_the_same_views(solver: str) -> None:
    body = {"body_weight_decay": "auto"} if solver == "head" else {}
    model = fitted("none", solver=solver, **body)
    analysis = model.analyse(X, Y)
    torch.testing.assert_close(analysis.leave_one_out().outputs, model.leave_one_out().outputs, **TIGHT)
    if solver != "pcg":
        return
    some = analysis.leave_one_out([3, 5]).outputs
    exact = fitted("none").leave_one_out().outputs[[3, 5]]
    torch.testing.assert_close(some, exact, rtol=1e-3, atol=1e-3)


def test_an_analysis_makes_up_for_folds_in_these_views(monkeypatch: pytest.MonkeyPatch) -> None:
    every = fitted("none", solver="pcg", loo="folds").leave_one_out()
    monkeypatch.setattr("lqf.fitting.refits.ENOUGH", 4)
    params = fitted("none", solver="pcg").get_params() | {"backbone": convnet()}
    model = LQFClassifier(**params).fit(X, Y, S)
    assert not bool(model.leave_one_out().known.all())
    torch.testing.assert_close(model.analyse(X, Y).leave_one_out().outputs, every.outputs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("solver", ["head", "dense"])
def test_a_saved_model_keeps_both_kinds_of_views(tmp_path: Path, solver: str) -> None:
    body = {"body_weight_decay": "auto"} if solver == "head" else {}
    model = fitted("flip", solver=solver, **body)
    model.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    assert (loaded.fitted_.preprocess.views, loaded.fitted_.trained_on.views) == ("flip", "crops4")
    np.testing.assert_array_equal(loaded.decision_function(NEW), model.decision_function(NEW))


# --- what cannot be shown ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("views", ["none", "five", "ten"])
def test_more_than_was_trained_on_is_refused_before_anything_is_opened(views: str) -> None:
    with pytest.raises(LQFError, match=f"with which views '{views}' do not begin; choose views flip"):
        classifier(views=views, predict_views="flip").fit("no such folder")


@pytest.mark.parametrize("solver", ["head", "dense", "pcg"])
def test_views_that_turn_out_not_to_help_are_not_shown(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.fitting.select_views.worth_it", lambda *_: False)
    monkeypatch.setattr("lqf.fitting.training_problem.TrainingProblem.solve", lambda *_, **__: pytest.fail("solved"))
    with pytest.raises(LQFError, match="with which views 'none' do not begin"):
        classifier(backbone=convnet(), size=8, solver=solver, predict_views="flip").fit(X, Y)
    with pytest.raises(LQFError, match="with which views 'none' do not begin"):
        classifier(solver=solver, predict_views="flip").fit(*data())


@pytest.mark.parametrize("moves", [{}, {"relinearize": 1}])
def test_views_that_cost_too_much_are_not_shown(moves: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lqf.fitting.select_views.worth_it", lambda *_: True)
    monkeypatch.setattr("lqf.fitting.training_problem.TrainingProblem.solve", lambda *_, **__: pytest.fail("solved"))
    monkeypatch.setattr("lqf.fitting.select_views.BEARABLE", 0.0)
    with pytest.raises(LQFError, match="with which views 'none' do not begin"):
        classifier(backbone=convnet(), size=8, predict_views="flip", **moves).fit(X, Y)


def test_views_that_were_chosen_can_be_shown() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lqf.fitting.select_views.worth_it", lambda *_: True)
        model = fitted("none", "auto")
    assert (model.report_["views"], model.report_["predict_views"]) == ("flip", "none")
    np.testing.assert_allclose(model.decision_function(NEW), fitted("none", "flip").decision_function(NEW), **TIGHT)
