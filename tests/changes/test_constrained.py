"""A constrained model is the optimum that a dense solver finds, its constraints hold, and contradictions are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dense import jacobian, normal_equations
from fits import FIXED, classifier, convnet, data, network, pictures, reopened
from lqf import LQFClassifier
from lqf.changes.constraints.conditions import Agree, Bound, Constraint, EqualMeans, KeepRight
from lqf.changes.constraints.small_program import Infeasible, SmallProgram
from lqf.errors import LQFError
from lqf.linear.model import with_one
from lqf.linear.problem import QuadraticProblem
from stacks import stacked

pytestmark = pytest.mark.usefixtures("one_thread")
N = 18
X, Y = data(N)
NEW, NEW_Y = data(9, seed=5)
GROUPS = ["a", "b"] * 9


def fitted(solver: str = "dense", form: str = "centred", n_classes: int = 3, **more: Any) -> LQFClassifier:
    x, y = data(N, n_classes)
    decay = {"weight_decay": 0.1} | ({} if solver == "head" else {"body_weight_decay": 0.2})
    how = {"max_passes": 400, "loo": "none"} if solver == "pcg" else {}
    params = {"solver": solver, "form": form, "linearize": "all", **decay, **how, **more}
    return classifier(**params).fit(x, y)


def dense_problem(model: LQFClassifier, x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """H, b, and of NEW: the outputs at δ = 0 (N·C,) and J (N·C, size), all as dense matrices."""
    problem = reopened(model, x, y).quadratic
    h, b = normal_equations(problem)
    j, base = jacobian_of(problem, torch.tensor(NEW))
    if model.fitted_.head_alone:
        k = problem.model.head_size
        return h[:k, :k], b[:k], base, j[:, :k]
    return h, b, base, j


def jacobian_of(problem: QuadraticProblem, x: Tensor) -> tuple[Tensor, Tensor]:
    model, w = problem.model, problem.model.heads.mean(0)
    z = model.body.value(x)
    head = torch.einsum("np,cd->ncdp", with_one(z), torch.eye(len(w), dtype=z.dtype)).flatten(2)
    base = model.constant + (with_one(z) @ w.T if model.around_w0 else torch.zeros(len(z), len(w)).double())
    return torch.cat([head, w[:, :-1] @ jacobian(model.body, x)], -1).flatten(0, 1), base.flatten()


def outputs(model: LQFClassifier) -> Tensor:
    return torch.tensor(model.decision_function(NEW)).flatten().double()


def equality_optimum(h: Tensor, b: Tensor, a: Tensor, c: Tensor) -> Tensor:
    """From the KKT system."""
    m = len(a)
    zero = torch.zeros(m, m, dtype=h.dtype)
    kkt = torch.cat([torch.cat([h, a.T], 1), torch.cat([a, zero], 1)])
    return torch.linalg.solve(kkt, torch.cat([b, c]))[: len(b)]


def group_difference(c: int) -> Tensor:
    """(C, 9·C): mean of every second image minus the mean of the others."""
    sign = torch.tensor([-1 / 5 if k % 2 == 0 else 1 / 4 for k in range(9)], dtype=torch.float64)
    return torch.kron(sign[None], torch.eye(c, dtype=torch.float64))


@pytest.mark.parametrize(
    ("solver", "form", "n_classes", "tolerance"),
    [
        ("dense", "centred", 3, 1e-8),
        ("dense", "w0", 3, 1e-8),
        ("dense", "centred", 2, 1e-8),
        ("head", "centred", 3, 1e-8),
        ("pcg", "centred", 3, 1e-6),
    ],
)
def test_equal_means_are_the_optimum_of_the_dense_kkt_system(
    solver: str, form: str, n_classes: int, tolerance: float
) -> None:
    x, y = data(N, n_classes)
    model = fitted(solver, form, n_classes)
    h, b, base, j = dense_problem(model, x, y)
    u = group_difference(1 if n_classes == 2 else n_classes)
    expected = base + j @ equality_optimum(h, b, u @ j, -u @ base)
    before = float((u @ outputs(model)).abs().max())
    model.constrain([EqualMeans(GROUPS[:9], NEW)], train=x, y=y)
    torch.testing.assert_close(outputs(model), expected, rtol=0, atol=tolerance * 15)
    report = model.report_["constraints"]
    assert before > 0.01
    assert report["violation_before"] == pytest.approx(before, rel=0.02 if solver == "pcg" else 1e-8)
    assert report["holds"]
    assert report["violation"] < 1e-8
    assert report["relative_residual"] < tolerance
    assert report["level"] == ("solved" if solver == "pcg" else "exact")


@pytest.mark.parametrize("solver", ["dense", "head"])
def test_inequalities_are_the_optimum_that_a_general_solver_finds(solver: str) -> None:
    pytest.importorskip("daqp")
    optimize = pytest.importorskip("scipy.optimize")
    model = fitted(solver)
    h, b, base, j = dense_problem(model, X, Y)
    free = base + j @ torch.linalg.solve(h, b)
    upper = float(free.quantile(0.8))
    d0 = torch.linalg.solve(h, b)
    root = torch.linalg.cholesky(h)  # in coordinates in which the objective is round
    a = torch.linalg.solve_triangular(root, j.T, upper=False).T
    found = optimize.minimize(
        lambda t: 0.5 * t @ t,
        np.zeros(len(b)),
        jac=lambda t: t,
        constraints={
            "type": "ineq",
            "fun": lambda t: upper - (free + a @ torch.tensor(t)).numpy(),
            "jac": lambda t: -a.numpy(),
        },
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 300},
    )
    expected = free + a @ torch.tensor(found.x)
    assert d0.isfinite().all()
    model.constrain([Bound(upper=upper, images=NEW)], train=X, y=Y)
    torch.testing.assert_close(outputs(model), expected, rtol=0, atol=1e-5)
    report = model.report_["constraints"]
    assert 0 < report["active"] < report["rows"] == 27
    assert report["relative_residual"] < 1e-8
    assert outputs(model).max() <= upper + 1e-8
    assert report["constraints"][0]["largest_multiplier"] > 0


def test_multipliers_have_the_signs_of_the_active_bounds() -> None:
    pytest.importorskip("daqp")
    model = fitted("head")
    free = outputs(model)
    low, high = float(free.quantile(0.2)), float(free.quantile(0.8))
    model.constrain([Bound(lower=low, upper=high, images=NEW)], train=X, y=Y)
    held = outputs(model)
    assert held.min() >= low - 1e-8
    assert held.max() <= high + 1e-8


def test_constraints_that_hold_already_change_nothing() -> None:
    model = fitted("dense")
    before = outputs(model)
    model.constrain([Bound(upper=1e3, images=NEW), Bound(lower=-1e3, mean=True)], train=X, y=Y)
    torch.testing.assert_close(outputs(model), before, rtol=0, atol=1e-12)
    assert model.report_["constraints"]["active"] == 0


def test_constraints_on_several_sets_of_pictures_through_a_convolution() -> None:
    x, y = pictures(12)
    model = classifier(backbone=convnet(), size=8, views="none", linearize="all", loo="none", **FIXED).fit(x, y)
    other, _ = pictures(5, seed=3)
    model.constrain([Bound(3.0, 3.0, of=1, mean=True), Bound(4.0, 4.0, of=2, images=other, mean=True)], train=x, y=y)
    assert model.decision_function(x)[:, 1].mean() == pytest.approx(3, abs=1e-8)
    assert model.decision_function(other)[:, 2].mean() == pytest.approx(4, abs=1e-8)


def test_repeated_constraints_are_no_contradiction() -> None:
    model, twice = fitted("dense"), fitted("dense")
    model.constrain([EqualMeans(GROUPS)], train=X, y=Y)
    twice.constrain([EqualMeans(GROUPS), EqualMeans(GROUPS[::-1])], train=X, y=Y)
    np.testing.assert_allclose(twice.decision_function(NEW), model.decision_function(NEW), atol=1e-7)
    means = [model.decision_function(X)[np.array(GROUPS) == g].mean(0) for g in "ab"]
    np.testing.assert_allclose(means[0], means[1], atol=1e-9)


def test_agreement_with_an_older_model_within_a_tolerance() -> None:
    pytest.importorskip("daqp")
    old = classifier(**FIXED, solver="head").fit(*data(12, seed=3))
    model = fitted("dense")
    apart = np.abs(model.decision_function(NEW) - old.decision_function(NEW)).max()
    model.constrain([Agree(old, NEW, tolerance=0.5 * apart)], train=X, y=Y)
    assert np.abs(model.decision_function(NEW) - old.decision_function(NEW)).max() == pytest.approx(
        0.5 * apart, abs=1e-7
    )


def negative_flips(old: LQFClassifier, new: LQFClassifier, x: np.ndarray, y: np.ndarray) -> int:
    return int(((old.predict(x) == y) & (new.predict(x) != y)).sum())


def test_what_an_older_model_gets_right_stays_right(tmp_path: Path) -> None:
    pytest.importorskip("daqp")
    x, y = data(60, seed=5, signal=0.5)
    old = classifier(weight_decay=1.0, solver="head").fit(*data(30, seed=3, signal=0.5))
    model = fitted("dense")
    old.save(tmp_path / "old")
    before = negative_flips(old, model, x[:30], y[:30]), negative_flips(old, model, x[30:], y[30:])
    model.constrain([KeepRight(old, x[:30], y[:30])], train=X, y=Y)
    assert before[0] > 0
    assert negative_flips(old, model, x[:30], y[:30]) == 0
    assert negative_flips(old, model, x[30:], y[30:]) <= before[1]


def test_contradictions_are_named_and_nothing_changes() -> None:
    pytest.importorskip("daqp")
    model = fitted("head")
    before = model.fitted_
    wrong: list[list[Constraint]] = [
        [EqualMeans(GROUPS), Bound(lower=3, of=1, mean=True), Bound(upper=4), Bound(upper=2, of=1, mean=True)],
        [Bound(lower=3.0, upper=3.0, mean=True, of=2), Bound(lower=5.0, upper=5.0, mean=True, of=2)],
    ]
    for constraints, texts in zip(wrong, [("at least 3", "at most 2"), ("equal to 3", "equal to 5")], strict=True):
        with pytest.raises(LQFError, match="contradict each other") as refused:
            model.constrain(constraints, train=X, y=Y)
        assert all(text in str(refused.value) for text in texts)
        assert "equal in" not in str(refused.value)
        assert model.fitted_ is before


@pytest.mark.parametrize(
    ("constraint", "sentence"),
    [
        (EqualMeans(["a", "b"]), "need the group of every image: 2 group names for 18 images"),
        (EqualMeans(["a"] * N), "need two groups or more"),
        (EqualMeans(GROUPS, tolerance=-1), "tolerance is -1; give a number from 0 up"),
        (Bound(), "a bound has no limits; give lower=, upper=, or both"),
        (Bound(lower=2, upper=1), "no output is at least 2 and at most 1"),
        (Bound(lower=2, of="crack"), "the model has no class `crack`"),
    ],
)
def test_what_cannot_be_meant_is_refused(constraint: Constraint, sentence: str) -> None:
    model = fitted("head")
    with pytest.raises(LQFError, match=sentence):
        model.constrain([constraint], train=X, y=Y)


def test_a_saved_model_keeps_its_constraints_and_claims_nothing_of_the_fit(tmp_path: Path) -> None:
    model = fitted("dense")
    assert model.leave_one_out().error >= 0
    model.constrain([EqualMeans(GROUPS)], train=X, y=Y)
    model.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=network())
    np.testing.assert_array_equal(loaded.decision_function(NEW), model.decision_function(NEW))
    assert loaded.report_["constraints"]["holds"]
    assert loaded.report_["loo_error"] is None
    assert "optimum under constraints" in loaded.report_["certificate"]
    for ask in (
        loaded.leave_one_out,
        lambda: loaded.influence(NEW),
        lambda: loaded.constrain([Bound(upper=1)], train=X),
    ):
        with pytest.raises(LQFError, match="changed by constraints"):
            ask()


def test_a_stack_moves_all_its_members_to_their_common_optimum() -> None:
    members, w = {"head": fitted("head"), "LQF": fitted("dense")}, (0.6, 0.4)
    parts = [dense_problem(m, X, Y) for m in members.values()]
    h = torch.block_diag(*(h for h, _, _, _ in parts))
    b = torch.cat([b for _, b, _, _ in parts])
    base = sum(wk * part[2] for wk, part in zip(w, parts, strict=True))
    j = torch.cat([wk * part[3] for wk, part in zip(w, parts, strict=True)], 1)
    u = group_difference(3)
    expected = base + j @ equality_optimum(h, b, u @ j, -u @ base)
    model = fitted("head")
    model._adopt(stacked(members, w))
    model.constrain([EqualMeans(GROUPS[:9], NEW)], train=X, y=Y)
    torch.testing.assert_close(outputs(model), expected, rtol=0, atol=1e-7)
    assert model.fitted_.loo is None
    assert all(m.report.constraints for m in model.fitted_.members)


def test_a_rank_deficient_programme_has_multipliers_too() -> None:
    a = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    same = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    lam = SmallProgram(a @ a.T, torch.zeros(3, dtype=torch.float64), same, same).multipliers()
    torch.testing.assert_close(-(a @ a.T) @ lam, same, rtol=0, atol=1e-12)
    other = torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64)
    with pytest.raises(Infeasible) as refused:
        SmallProgram(a @ a.T, torch.zeros(3, dtype=torch.float64), other, other).multipliers()
    assert refused.value.rows == [0, 1]


def test_constraints_that_are_given_to_the_fit() -> None:
    model = fitted("head", constraints=[EqualMeans(dict(zip(map(str, range(N)), GROUPS, strict=True)))])
    after = fitted("head").constrain([EqualMeans(GROUPS)], train=X, y=Y)
    np.testing.assert_allclose(model.decision_function(NEW), after.decision_function(NEW), atol=1e-12)
    assert model.get_params()["constraints"] is not None
    with pytest.raises(LQFError, match="the group of `0`, `2`, `3` and 14 more is not given"):
        fitted("head", constraints=[EqualMeans({"1": "a"})])
