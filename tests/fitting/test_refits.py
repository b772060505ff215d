"""Out-of-sample outputs by refits: no label of a fold reaches its own predictions; they are those of real refits."""

import numpy as np
import pytest
import torch

from fits import FIXED, classifier, convnet, data, pictures, reopened
from lqf.fast import FastLinearization
from lqf.fitting.folds import folds_needed, stratified_folds
from lqf.fitting.point import crossfit_point
from lqf.fitting.refits import Refits
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.solvers import Head
from problems import features, problem
from real_refits import without_each_fold

LABELS = torch.arange(18) % 3


def whole(labels: torch.Tensor = LABELS) -> tuple[QuadraticProblem, Head]:
    p = problem("mlp", n=18, labels=labels, around_w0=False, ridge=Ridge(3.0, 5.0))
    return p, Head.of(features(p), p.initial_residual(features(p)), p.weights, torch.arange(18))


def refits(p: QuadraticProblem, head: Head, monkeypatch: pytest.MonkeyPatch, products: int = 400) -> Refits:
    monkeypatch.setattr("lqf.fitting.refits.REFIT_PRODUCTS", products)
    monkeypatch.setattr("lqf.fitting.refits.REFIT_TOL", 1e-9)
    return Refits(p, head, lambda _, part, fold: crossfit_point(part, 3.0, fold), None)


def test_outputs_are_those_of_the_optimum_without_the_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    p, head = whole()
    fold = stratified_folds(torch.arange(18), LABELS, folds=3)
    expected = without_each_fold(p, fold, 3.0)
    outputs = refits(p, head, monkeypatch).outputs(fold)
    for k in range(3):
        torch.testing.assert_close(outputs[fold == k], expected[fold == k], rtol=1e-5, atol=1e-5)


GROUPS = np.arange(12) // 6 * 3 + np.arange(12) % 3
"""Two groups of two samples in each of three classes."""


@pytest.mark.parametrize(
    ("views", "groups", "folds"),
    [("flip", None, 4), ("none", GROUPS, 2), ("flip", GROUPS, 2)],
    ids=["views", "groups", "views and groups"],
)
def test_all_views_of_a_sample_and_whole_groups_leave_with_their_fold(
    views: str, groups: np.ndarray | None, folds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lqf.fitting.refits.REFIT_PRODUCTS", 400)
    monkeypatch.setattr("lqf.fitting.refits.REFIT_TOL", 1e-9)
    x, y = pictures(12, side=12)
    s = np.random.default_rng(0).uniform(0.5, 2, 12)
    model = classifier(backbone=convnet(), size=8, views=views, solver="pcg", loo="folds", **FIXED)
    loo = model.fit(x, y, s, groups=groups).leave_one_out()
    assert loo.note == f"by refits without each of {folds} folds"
    training = reopened(model, x, y, s, groups)
    v, fold = training.data.n_views, training.data.folds
    together = torch.arange(12) if groups is None else torch.tensor(groups)
    for g in together.unique():
        assert len(fold.view(12, v)[together == g].unique()) == 1
    rows = without_each_fold(training.quadratic, fold, training.head_fit.choice.mu)
    torch.testing.assert_close(loo.outputs, rows.view(12, v, 3).mean(1), rtol=1e-6, atol=1e-6)


def test_rows_without_weight_are_rows_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    p, head = whole()
    fold = stratified_folds(torch.arange(18), LABELS, folds=3)
    expected = refits(p, head, monkeypatch, products=4).outputs(fold)
    fast = p.with_body(FastLinearization(p.model.body, torch.float64, p.inputs.example()))
    held = [(rows, x) for rows, x in p.inputs.batches() if fast.model.body.keep(x)]
    p.inputs.hold(held)
    assert p.inputs.held_share == 1
    seen = []
    monkeypatch.setattr("lqf.fitting.refits.subproblem", lambda *_: seen.append(1))
    outputs = refits(fast, head, monkeypatch, products=4).outputs(fold)
    assert not seen  # the refits went over the kept batches
    torch.testing.assert_close(outputs, expected, rtol=1e-9, atol=1e-9)


def test_labels_of_a_fold_do_not_reach_its_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    fold = stratified_folds(torch.arange(18), LABELS, folds=3)
    before = refits(*whole(), monkeypatch, products=4)
    changed, head = whole(torch.where(fold == 1, (LABELS + 1) % 3, LABELS))
    after = Refits(changed, head, before.point, None).outputs(fold)
    torch.testing.assert_close(after[fold == 1], before.outputs(fold)[fold == 1], rtol=1e-10, atol=1e-10)
    assert not torch.allclose(after[fold == 0], before.outputs(fold)[fold == 0], atol=1e-3)


def test_enough_samples_need_not_all_be_refitted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert folds_needed(torch.arange(5000) % 5, 1000) == 1
    assert folds_needed(torch.arange(2000) % 5, 1000) == 3
    assert folds_needed(torch.arange(900) % 5, 1000) == 5
    monkeypatch.setattr("lqf.fitting.refits.ENOUGH", 10)
    x, y = data(40)
    some = classifier(solver="pcg", **FIXED).fit(x, y)
    loo, every = some.leave_one_out(), classifier(solver="pcg", loo="folds", **FIXED).fit(x, y).leave_one_out()
    assert "without 2 of 5 folds" in loo.note
    assert 10 <= int(loo.known.sum()) < 40
    assert bool(every.known.all())
    torch.testing.assert_close(loo.outputs[loo.known], every.outputs[loo.known])
    wrong = loo.predicted[loo.known] != loo.labels[loo.known]
    assert loo.error == some.report_["loo_error"] == pytest.approx(float(wrong.double().mean()))
    assert np.isfinite(some.predict_proba(x)).all()


def test_a_fit_by_pcg_reports_refits_without_folds() -> None:
    x, y = data(40)
    model = classifier(solver="pcg", **FIXED).fit(x, y)
    loo = model.leave_one_out()
    assert loo.level == "estimated"
    assert loo.note == "by refits without each of 5 folds"
    assert model.report_["loo_error"] == loo.error
    exact = classifier(solver="dense", **FIXED).fit(x, y).leave_one_out()
    assert abs(loo.error - exact.error) <= 0.2
    agreement = np.corrcoef(loo.outputs.numpy().ravel(), exact.outputs.numpy().ravel())[0, 1]
    assert agreement > 0.8
    none = classifier(solver="pcg", loo="none", **FIXED).fit(x, y)
    assert none.report_["loo_error"] is None
    np.testing.assert_allclose(none.decision_function(x), model.decision_function(x), atol=1e-4)


def test_noise_is_not_predicted() -> None:
    """With random labels no honest estimate is far below chance."""
    x, _ = data(60, seed=1)
    y = np.random.default_rng(0).integers(0, 3, 60)
    assert classifier(solver="pcg").fit(x, y).leave_one_out().error > 0.5
