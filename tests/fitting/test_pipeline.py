"""All stages of a fit: laws of an exact solution, that solution by brute force, and how exact its numbers are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from dense import optimum
from fits import FIXED, brute_outputs, classifier, convnet, data, network, pictures, problem_of, reopened
from lqf import LQFClassifier
from lqf.data import load_samples, normalize, open_images
from lqf.errors import LQFError
from lqf.linear.inputs import Inputs, average_views

X, Y = data(18)
NEW = data(8, seed=7)[0]
TIGHT = {"rtol": 1e-8, "atol": 1e-8}
POINTS = ("crossfit", "probe", "random")
BLIND = ("probe", "random")
"""Points that do not depend on the order of the samples: cross-fitting's folds do."""
binary_or_multi = pytest.mark.parametrize("n_classes", [2, 3])


def outputs(model: LQFClassifier, x: Any = NEW) -> torch.Tensor:
    """(N, C)."""
    f = torch.tensor(model.decision_function(x))
    return f[:, None] if f.ndim == 1 else f


# --- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", BLIND)
@pytest.mark.parametrize("form", ["centred", "w0"])
@binary_or_multi
def test_a_duplicate_equals_weight_two(head: str, form: str, n_classes: int) -> None:
    x, y = data(14, n_classes)
    model = classifier(head=head, form=form, **FIXED)
    heavy = model.fit(x, y, np.array([2.0] + [1.0] * 13)).decision_function(NEW)
    twice = clone(model).fit(np.concatenate([x, x[:1]]), np.append(y, y[0])).decision_function(NEW)
    np.testing.assert_allclose(twice, heavy, **TIGHT)
    assert abs(clone(model).fit(x, y).decision_function(NEW) - heavy).max() > 1e-3


def test_a_duplicate_in_its_group_equals_weight_two_under_cross_fitting() -> None:
    x, y = data(15)
    heavy = classifier(**FIXED).fit(x, y, np.array([2.0] + [1.0] * 14), groups=np.arange(15))
    twice = classifier(**FIXED).fit(np.concatenate([x, x[:1]]), np.append(y, y[0]), groups=[*range(15), 0])
    torch.testing.assert_close(outputs(twice), outputs(heavy), **TIGHT)
    a, b = twice.leave_one_out().outputs, heavy.leave_one_out().outputs
    torch.testing.assert_close(a[:15], b, **TIGHT)
    torch.testing.assert_close(a[15], b[0], **TIGHT)


@pytest.mark.parametrize("head", POINTS)
def test_weight_zero_equals_absence(head: str) -> None:
    x, y = data(18)
    w = np.r_[np.ones(14), np.zeros(4)]
    model = classifier(head=head, **FIXED)  # λ = μ/Σs: the same λ is the same μ
    zero = model.fit(x, y, w)
    absent = clone(model).fit(x[:14], y[:14])
    np.testing.assert_array_equal(zero.decision_function(NEW), absent.decision_function(NEW))
    assert torch.equal(zero.leave_one_out().outputs, absent.leave_one_out().outputs)
    assert zero.report_["n"] == 14


def test_weight_decay_is_per_unit_of_weight() -> None:
    x, y = data(14)
    light = classifier(head="random", **FIXED).fit(x, y)
    heavy = classifier(head="random", **FIXED).fit(x, y, np.full(14, 3.0))
    torch.testing.assert_close(outputs(light), outputs(heavy), **TIGHT)
    assert light.report_["weight_decay"] == pytest.approx(heavy.report_["weight_decay"]) == FIXED["weight_decay"]


@pytest.mark.parametrize("head", BLIND)
def test_order_and_batches_do_not_matter(head: str) -> None:
    order = np.random.default_rng(1).permutation(18)
    a = classifier(head=head, **FIXED).fit(X, Y)
    b = classifier(head=head, batch_size=5, **FIXED).fit(X[order], Y[order])
    torch.testing.assert_close(outputs(a), outputs(b), **TIGHT)
    torch.testing.assert_close(a.leave_one_out().outputs[order], b.leave_one_out().outputs, **TIGHT)


@pytest.mark.parametrize("form", ["centred", "w0"])
def test_class_permutation_permutes_the_outputs(form: str) -> None:
    """The random head is not permuted with the classes."""
    model = classifier(head="probe", form=form, **FIXED)
    to = np.array([2, 0, 1])
    a, b = model.fit(X, Y), clone(model).fit(X, to[Y])
    torch.testing.assert_close(outputs(a), outputs(b)[:, to], **TIGHT)
    x, y = data(18, 2)
    f, g = model.fit(x, y).decision_function(NEW), clone(model).fit(x, 1 - y).decision_function(NEW)
    np.testing.assert_allclose(f, -g, **TIGHT)


@pytest.mark.parametrize("head", POINTS)
def test_pcg_reaches_the_dense_solution(head: str) -> None:
    dense = classifier(head=head, **FIXED).fit(X, Y)
    pcg = classifier(head=head, solver="pcg", tol=1e-10, max_passes=500, **FIXED).fit(X, Y)
    torch.testing.assert_close(outputs(pcg), outputs(dense), rtol=1e-6, atol=1e-6)
    assert (dense.report_["level"], pcg.report_["level"]) == ("exact", "solved")
    assert pcg.report_["converged"]
    assert pcg.report_["relative_residual"] <= 1e-10


@pytest.mark.parametrize("solver", ["sgd", "adam"])
def test_sgd_and_adam_come_near_the_dense_solution(solver: str) -> None:
    params = {"weight_decay": 1.0, "body_weight_decay": 3.0, "head": "random"}
    dense = classifier(**params).fit(X, Y)
    rate = {"learning_rate": 0.05} if solver == "adam" else {}
    model = classifier(solver=solver, epochs=60, minibatch=6, **rate, **params).fit(X, Y)
    far = classifier(solver="head", weight_decay=1.0).fit(X, Y)
    distance = (outputs(model) - outputs(dense)).norm()
    assert distance < 0.3 * (outputs(far) - outputs(dense)).norm()
    assert model.report_["solver"] == solver


def test_strong_ridge_on_the_body_leaves_the_head_alone() -> None:
    head = classifier(solver="head", weight_decay=0.1).fit(X, Y)
    frozen = classifier(weight_decay=0.1, body_weight_decay=1e9).fit(X, Y)
    torch.testing.assert_close(outputs(frozen), outputs(head), rtol=1e-6, atol=1e-6)
    assert not np.allclose(outputs(classifier(**FIXED).fit(X, Y)), outputs(head), atol=1e-2)


def test_strong_ridge_around_w0_gives_w0() -> None:
    model = classifier(form="w0", head="random", weight_decay=1e12).fit(X, Y)
    z = model.fitted_.backbone.body(torch.tensor(NEW))
    w0 = z @ model.fitted_.point.T + 15 / 3
    torch.testing.assert_close(outputs(model), w0, rtol=1e-6, atol=1e-6)


# --- the solution by brute force --------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", POINTS)
@pytest.mark.parametrize("form", ["centred", "w0"])
@binary_or_multi
def test_outputs_are_those_of_the_dense_normal_equations(head: str, form: str, n_classes: int) -> None:
    x, y = data(14, n_classes)
    w = np.random.default_rng(0).random(14) + 0.5
    model = classifier(head=head, form=form, **FIXED).fit(x, y, w)
    problem = problem_of(model, x, y, w)
    expected = brute_outputs(problem, optimum(problem), torch.tensor(NEW))
    torch.testing.assert_close(outputs(model), expected, **TIGHT)
    assert model.report_["relative_residual"] < 1e-8
    assert model.report_["unknowns"] == problem.size


@pytest.mark.parametrize("head", POINTS)
@pytest.mark.parametrize("form", ["centred", "w0"])
@pytest.mark.parametrize("grouped", [False, True])
def test_leave_one_out_is_refitting_without_the_sample(head: str, form: str, grouped: bool) -> None:
    """The same linearisation point and ridge strengths, the sample's whole group gone."""
    x, y = data(14)
    w = np.random.default_rng(0).random(14) + 0.5
    groups = np.arange(14) // 2 if grouped else np.arange(14)
    model = classifier(head=head, form=form, **FIXED).fit(x, y, w, groups=groups if grouped else None)
    problem = problem_of(model, x, y, w, groups if grouped else None)
    loo = model.leave_one_out()
    for g in np.unique(groups):
        out = torch.tensor(groups == g)
        e = problem.residuals(optimum(problem, ~out))
        torch.testing.assert_close(loo.outputs[out], (problem.targets - e)[out], **TIGHT)
    assert loo.level == "exact"
    assert loo.error == model.report_["loo_error"]


@binary_or_multi
def test_leave_one_out_of_the_head_is_refitting_the_estimator(n_classes: int) -> None:
    """Nothing depends on the labels here, so all of `fit` can be repeated; μ is kept, not λ = μ/Σs."""
    x, y = data(14, n_classes)
    model = classifier(solver="head", weight_decay=0.3).fit(x, y)
    loo = model.leave_one_out().outputs
    for i in range(14):
        rest = np.arange(14) != i
        again = classifier(solver="head", weight_decay=0.3 * 14 / 13).fit(x[rest], y[rest])
        torch.testing.assert_close(loo[i], outputs(again, x[i : i + 1])[0], **TIGHT)


def test_automatic_weight_decay_is_reported_as_it_was_used() -> None:
    model = classifier().fit(X, Y)
    problem = problem_of(model, X, Y)
    expected = brute_outputs(problem, optimum(problem), torch.tensor(NEW))
    torch.testing.assert_close(outputs(model), expected, rtol=1e-6, atol=1e-6)
    chosen = {k: model.report_[k] for k in FIXED}
    torch.testing.assert_close(outputs(classifier(**chosen).fit(X, Y)), outputs(model), rtol=1e-6, atol=1e-6)


# --- how exact the numbers are ----------------------------------------------------------------------------------------


def test_the_probe_point_carries_its_measured_bias() -> None:
    x, y = data(30, signal=0.3)
    probe, blind = (
        classifier(head=h, weight_decay=1e-3, body_weight_decay=1e-3).fit(x, y) for h in ("probe", "crossfit")
    )
    bias = 100 * (blind.leave_one_out().error - probe.leave_one_out().error)
    assert bias > 0  # it flatters
    note = probe.leave_one_out().note
    assert note == f"the linearisation point has seen the labels, which flatters it by about {bias:.1f} points"
    assert probe.report_["loo_note"] == note
    assert blind.leave_one_out().note == classifier(head="random").fit(x, y).leave_one_out().note == ""


def test_levels_of_leave_one_out() -> None:
    x, y = data(18, 2)
    assert classifier(solver="pcg").fit(x, y).leave_one_out().level == "exact"  # one output: the kernel is exact
    for way, note in (("auto", "refits without each of"), ("kernel", "averaged over the outputs")):
        loo = classifier(solver="pcg", loo=way).fit(X, Y).leave_one_out()
        assert loo.level == "estimated"
        assert note in loo.note
    assert classifier(solver="head").fit(X, Y).leave_one_out().level == "exact"


@binary_or_multi
def test_estimated_leave_one_out_follows_the_exact_one(n_classes: int) -> None:
    x, y = data(24, n_classes)
    params = {"head": "random", "tol": 1e-8, "loo": "kernel", **FIXED}
    exact, near = (classifier(solver=s, **params).fit(x, y).leave_one_out().outputs for s in ("dense", "pcg"))
    if n_classes == 2:
        torch.testing.assert_close(near, exact, **TIGHT)
    else:
        assert float(torch.corrcoef(torch.stack([near.flatten(), exact.flatten()]))[0, 1]) > 0.6


@pytest.mark.parametrize("loo", ["none", "kernel"])
def test_leave_one_out_that_is_not_known_says_so(monkeypatch: pytest.MonkeyPatch, loo: str) -> None:
    monkeypatch.setattr("lqf.fitting.solve.MOST_SAMPLES", 10)  # the kernel covers a part only
    model = classifier(solver="pcg", loo=loo).fit(X, Y)
    assert model.report_["loo_error"] is None
    with pytest.raises(LQFError, match="leave-one-out is not known for this fit"):
        model.leave_one_out()
    assert model.predict_proba(NEW).shape == (8, 3)


def test_passes_that_do_not_suffice_are_flagged() -> None:
    with pytest.raises(LQFError, match=r"stopped before reaching .*; give a larger max_passes"):
        classifier(solver="pcg", tol=1e-12, max_passes=4, unconverged="refuse", **FIXED).fit(X, Y)
    model = classifier(solver="pcg", tol=1e-12, max_passes=4, unconverged="keep", **FIXED).fit(X, Y)
    assert not model.report_["converged"]
    assert "stopped before reaching the tolerance" in model.report_["certificate"]


# --- views ------------------------------------------------------------------------------------------------------------


def test_views_share_the_weight_leave_together_and_are_averaged() -> None:
    x, y = pictures(9, side=12)
    new = pictures(4, side=12, seed=5)[0]
    w = np.random.default_rng(0).random(9) + 0.5
    model = classifier(backbone=convnet(), size=8, views="flip", **FIXED).fit(x, y, w)
    problem = problem_of(model, x, y, w)
    assert len(problem.targets) == 18
    torch.testing.assert_close(problem.weights.view(9, 2), torch.tensor(w)[:, None].expand(9, 2) / 2)
    rows = torch.arange(18) // 2
    loo = model.leave_one_out().outputs
    for i in range(9):
        e = problem.residuals(optimum(problem, rows != i))
        torch.testing.assert_close(loo[i], (problem.targets - e)[rows == i].mean(0), **TIGHT)
    preprocess = model.fitted_.preprocess
    images = open_images(load_samples(new), preprocess)
    per_view = [
        brute_outputs(problem, optimum(problem), normalize(images.batch(range(4), v), preprocess, torch.float64))
        for v in range(2)
    ]
    assert not torch.allclose(*per_view)
    torch.testing.assert_close(outputs(model, new), (per_view[0] + per_view[1]) / 2, **TIGHT)


def test_views_and_groups_leave_together() -> None:
    x, y = pictures(12, 2, side=12)
    groups = np.arange(12) // 3
    model = classifier(backbone=convnet(), size=8, views="flip", **FIXED).fit(x, y, groups=groups)
    training = reopened(model, x, y, groups=groups)
    problem = training.quadratic
    of_row = torch.tensor(groups).repeat_interleave(2)
    assert torch.equal(training.data.groups, of_row)
    assert all(len(problem.fold[of_row == g].unique()) == 1 for g in range(4))
    loo = model.leave_one_out().outputs
    for g in range(4):
        e = problem.residuals(optimum(problem, of_row != g))
        expected = average_views(problem.targets - e, 2)
        torch.testing.assert_close(loo[groups == g], expected[groups == g], **TIGHT)


def test_symmetric_pictures_have_no_use_for_mirrored_views() -> None:
    half = pictures(12, side=12)[0][:, :, :6]
    x, y = np.concatenate([half, half[:, :, ::-1]], 2), pictures(12)[1]
    plain, flipped = (
        classifier(backbone=convnet(), size=12, views=v, head="probe", **FIXED).fit(x, y) for v in ("none", "flip")
    )
    torch.testing.assert_close(outputs(plain, x), outputs(flipped, x), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(plain.leave_one_out().outputs, flipped.leave_one_out().outputs, rtol=1e-6, atol=1e-6)


# --- a frozen prefix --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["dense", "pcg", "sgd"])
def test_a_frozen_prefix_is_cached_without_any_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solver: str
) -> None:
    params = {"solver": solver, "linearize": "second", "epochs": 3, "tol": 1e-9, "max_passes": 300, **FIXED}
    cached = classifier(**params).fit(X, Y)
    with monkeypatch.context() as patch:
        patch.setattr(Inputs, "cache_prefix", lambda self, **_: False)
        plain = classifier(**params).fit(X, Y)
    torch.testing.assert_close(outputs(cached), outputs(plain), rtol=1e-10, atol=1e-10)
    assert len(cached.fitted_.delta) == 6 * 5 + 5  # the weights of `second`
    assert not np.allclose(outputs(cached), outputs(classifier(**params | {"linearize": "all"}).fit(X, Y)))
    cached.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=network(), device="cpu")
    np.testing.assert_array_equal(loaded.decision_function(NEW), cached.decision_function(NEW))


def test_a_frozen_prefix_with_views_against_brute_force() -> None:
    x, y = pictures(9, side=12)
    model = classifier(backbone=convnet(), size=8, views="flip", linearize="deep", **FIXED).fit(x, y)
    training = reopened(model, x, y)
    problem = training.quadratic
    new = open_images(load_samples(pictures(4, side=12, seed=5)[0]), model.fitted_.preprocess)
    prefix = training.encoder.inputs.prefix
    assert prefix is not None
    per_view = []
    for v in range(2):
        pixels = normalize(new.batch(range(4), v), model.fitted_.preprocess, torch.float64)
        per_view.append(brute_outputs(problem, optimum(problem), prefix(pixels)))
    torch.testing.assert_close(outputs(model, pictures(4, side=12, seed=5)[0]), sum(per_view) / 2, **TIGHT)
