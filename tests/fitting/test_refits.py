"""Out-of-sample outputs by refits: no label of a fold reaches its own predictions; they are those of real refits."""

import numpy as np
import pytest
import torch

from dense import optimum
from fits import FIXED, classifier, data
from lqf.fast import FastLinearization
from lqf.fitting.folds import stratified_folds
from lqf.fitting.point import Point, crossfit_point
from lqf.fitting.refits import Refits, folds_needed
from lqf.kernels.tangent import subproblem
from lqf.linear.model import with_one
from lqf.linear.problem import QuadraticProblem, Ridge
from lqf.solvers import Head
from problems import features, problem

LABELS = torch.arange(18) % 3


def whole(labels: torch.Tensor = LABELS) -> tuple[QuadraticProblem, Head]:
    p = problem("mlp", n=18, labels=labels, around_w0=False, ridge=Ridge(3.0, 5.0))
    return p, Head.of(features(p), p.initial_residual(features(p)), p.weights, torch.arange(18))


def refits(p: QuadraticProblem, head: Head, monkeypatch: pytest.MonkeyPatch, products: int = 400) -> Refits:
    monkeypatch.setattr("lqf.fitting.refits.REFIT_PRODUCTS", products)
    return Refits(p, head, lambda part, fold: crossfit_point(part, 3.0, fold), None)


def test_they_are_the_predictions_of_the_optimum_without_the_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    p, head = whole()
    fold = stratified_folds(torch.arange(18), LABELS, folds=3)
    outputs = refits(p, head, monkeypatch).outputs(fold)
    for k in range(3):
        keep = (fold != k).nonzero()[:, 0]
        part = subproblem(p, keep)
        z = features(part)
        sub = Head.of(z, part.initial_residual(z), part.weights, torch.arange(len(keep)))
        numbers = torch.unique(fold[keep], return_inverse=True)[1]
        point: Point = crossfit_point(sub, 3.0, numbers)
        model = type(p.model)(p.model.body, point.heads, False, p.model.constant)
        best = optimum(QuadraticProblem(model, part.inputs, part.targets, part.weights, point.fold, p.ridge))
        x = p.inputs.fetch((fold == k).nonzero()[:, 0])
        v, body = model.split(best)
        z, dz = p.model.body.jvp(x, body)
        expected = p.model.constant + with_one(z) @ v.T + dz @ point.heads.mean(0)[:, :-1].T
        torch.testing.assert_close(outputs[fold == k], expected, rtol=1e-5, atol=1e-5)


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
    assert folds_needed(torch.arange(5000) % 5) == 1
    assert folds_needed(torch.arange(2000) % 5) == 3
    assert folds_needed(torch.arange(900) % 5) == 5
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


def test_a_fit_by_pcg_reports_them() -> None:
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


def test_two_folds_and_views_and_groups() -> None:
    x, y = data(12)
    groups = np.arange(12) // 2 * 3 + y  # pairs of a class
    model = classifier(solver="pcg", **FIXED).fit(x, y, groups=groups)
    assert model.leave_one_out().outputs.shape[0] == 12
