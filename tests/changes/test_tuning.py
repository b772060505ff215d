"""Tuning in float64: the path is what refits give, slopes are finite differences, a tuned model is a fit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dense import ridge_matrix, rows
from fits import CPU, FIXED, brute_outputs, classifier, convnet, data, network, opened, pictures, reopened
from lqf import LQFClassifier, LQFError
from lqf.changes.tuning.plot import draw
from lqf.changes.tuning.strengths import Tried, scaled
from lqf.changes.tuning.tune import Opened, StrengthSearch
from lqf.evaluation.best_loss import best_loss
from lqf.fitting import Context, TrainingProblem
from lqf.linear.ridge import Ridge
from lqf.linear.targets import error_rate
from stacks import stacked

KINDS: dict[str, dict[str, Any]] = {
    "dense": {},
    "around w0": {"form": "w0"},
    "by stage": {"strengths": "stages"},
    "probe": {"head": "probe"},
    "head": {"solver": "head"},
    "pcg": {**FIXED, "solver": "pcg", "tol": 1e-12, "max_passes": 400, "preconditioner": "none", "loo": "none"},
}

SIGNAL = 1.0


def fitted(kind: str, **params: Any) -> tuple[LQFClassifier, np.ndarray, np.ndarray]:
    x, y = data(18, signal=SIGNAL)
    weights = np.linspace(0.5, 2.0, 18)
    return classifier(**KINDS[kind] | params).fit(x, y, sample_weight=weights), x, y


def tuning(model: LQFClassifier, x: Any, y: Any, validation: Any = None) -> StrengthSearch:
    problem = reopened(model, x, y, np.linspace(0.5, 2.0, len(y)))
    judging = None if validation is None else opened(*validation, model.fitted_.preprocess)
    return StrengthSearch(model.fitted_, {0: Opened(model.fitted_, problem, judging)}, judging)


def brute(problem: TrainingProblem, keep: Tensor | None = None) -> Tensor:
    """δ* of the problem, or of some of its rows, by its dense Jacobian."""
    j, r, s = rows(problem.quadratic)
    keep = torch.ones(len(s), dtype=torch.bool) if keep is None else keep
    j, r, s = j[keep], r[keep], s[keep]
    system = torch.einsum("ncd,n,nce->de", j, s, j) + torch.diag(ridge_matrix(problem.quadratic))
    return torch.linalg.solve(system, torch.einsum("ncd,n,nc->d", j, s, r))


def at(problem: TrainingProblem, ridge: Any) -> TrainingProblem:
    return replace(problem, quadratic=problem.quadratic.with_ridge(ridge))


def ridge_of(opened_again: StrengthSearch, tried: Tried) -> Ridge:
    problem = opened_again.main.problem
    base, total = problem.ridge, problem.data.total_weight
    body = tried.body_weight_decay
    return scaled(base, tried.weight_decay * total / base.head, 1.0 if body is None else body * total / base.body)


def left_out_by_refits(problem: TrainingProblem) -> Tensor:
    """(N, C) outputs of every sample by the refit without it."""
    j, r, _ = rows(problem.quadratic)
    n = len(r)
    deltas = [brute(problem, torch.arange(n) != i) for i in range(n)]
    e = torch.stack([r[i] - j[i] @ d for i, d in enumerate(deltas)])
    return problem.data.targets - e


@pytest.mark.parametrize("kind", ["dense", "around w0", "probe", "by stage"])
def test_the_path_by_leave_one_out_is_what_refits_give(kind: str):
    model, x, y = fitted(kind)
    opened_again = tuning(model, x, y)
    path = opened_again.path([0.1, 3.0], descend=False)
    problem, judge = opened_again.main.problem, opened_again.main.problem.data.judge
    for tried in path.grid:
        outputs = left_out_by_refits(at(problem, ridge_of(opened_again, tried)))
        assert tried.loss == pytest.approx(best_loss(outputs, judge.labels, judge.weights).value, abs=1e-8)
        assert tried.error == pytest.approx(error_rate(outputs, judge.labels, judge.weights))
    assert path.level == "exact"
    assert len(path.grid) == 4


def test_the_path_of_a_head_is_what_refits_give():
    model, x, y = fitted("head")
    opened_again = tuning(model, x, y)
    path = opened_again.path([0.1, 1.0, 3.0], descend=False)
    for tried in path.grid:
        refit = classifier(solver="head", weight_decay=tried.weight_decay)
        refit.fit(x, y, sample_weight=np.linspace(0.5, 2.0, 18))
        loo = refit.leave_one_out()
        judge = opened_again.main.problem.data.judge
        assert tried.loss == pytest.approx(best_loss(loo.outputs, judge.labels, judge.weights).value, abs=1e-8)
    assert path.current.loss == pytest.approx(path.grid[1].loss, abs=1e-10)
    assert all(t.body_weight_decay is None for t in path.grid)


@pytest.mark.parametrize("kind", ["dense", "around w0", "by stage", "pcg", "head"])
def test_the_path_by_validation_is_what_refits_give(kind: str):
    model, x, y = fitted(kind)
    validation = data(24, seed=5, signal=SIGNAL)
    opened_again = tuning(model, x, y, validation)
    path = opened_again.path([0.2, 2.0], descend=False)
    labels, ones = torch.tensor(validation[1]), torch.ones(24, dtype=torch.float64)
    for tried in path.grid:
        problem = at(opened_again.main.problem, ridge_of(opened_again, tried))
        if kind == "head":
            refit = classifier(solver="head", weight_decay=tried.weight_decay)
            refit.fit(x, y, sample_weight=np.linspace(0.5, 2.0, 18))
            outputs = torch.tensor(refit.decision_function(validation[0]))
        else:
            outputs = brute_outputs(problem.quadratic, brute(problem), torch.tensor(validation[0]))
        assert tried.loss == pytest.approx(best_loss(outputs, labels, ones).value, abs=1e-8)
        assert tried.error == pytest.approx(error_rate(outputs, labels))
    assert path.by == "validation"
    assert (path.passes > 0) == (kind == "pcg")


@pytest.mark.parametrize(
    ("kind", "judged"),
    [(kind, "validation") for kind in KINDS] + [(kind, "leave-one-out") for kind in KINDS if kind != "pcg"],
)
def test_slopes_are_finite_differences(kind: str, judged: str):
    model, x, y = fitted(kind, **({"tol": 1e-13} if kind == "pcg" else {}))
    opened_again = tuning(model, x, y, data(24, seed=5, signal=SIGNAL) if judged == "validation" else None)
    if kind == "pcg":
        opened_again.main.term.model.tol = 1e-13  # type: ignore[attr-defined]
    assert_slopes(opened_again, 1 if kind == "head" else 2)


def assert_slopes(opened_again: StrengthSearch, n: int = 2) -> None:
    """Exact slopes against differences of the loss."""
    slope, h = opened_again.judge.at(0.7, 1.6, slope=True).slope, 1e-4
    assert slope is not None
    assert len(slope) == n
    for k, found in enumerate(slope):
        up, down = (
            opened_again.judge.at(0.7 * np.exp(s * h * (k == 0)), 1.6 * np.exp(s * h * (k == 1))).loss for s in (1, -1)
        )
        assert found == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-7)


def test_slopes_with_views_and_groups():
    """Mirror images and groups of samples leave together."""
    x, y = pictures(14, 2)
    groups = np.arange(14) // 2 * 2 + y

    model = classifier(backbone=convnet(), views="flip", size=8).fit(x, y, groups=groups)
    problem = reopened(model, x, y, groups=groups)
    assert_slopes(StrengthSearch(model.fitted_, {0: Opened(model.fitted_, problem)}))


def test_the_descent_ends_where_the_slope_is_flat():
    x, y = data(36, signal=0.5)
    model = classifier(weight_decay=3.0, body_weight_decay=0.01).fit(x, y)
    path = model.tune(*data(90, seed=5, signal=0.5), factors=[1.0], train=x)
    assert path.descent[0].loss == pytest.approx(path.current.loss)
    losses = [t.loss for t in path.descent]
    assert losses == sorted(losses, reverse=True)
    end = path.descent[-1]
    assert end.slope is not None
    assert max(map(abs, end.slope)) < 1e-4 * end.loss
    assert path.best == end
    assert end.loss < path.current.loss - 1e-3


def test_it_descends_by_solving_too():
    model, x, y = fitted("pcg", weight_decay=3.0, body_weight_decay=0.01)
    path = tuning(model, x, y, data(24, seed=5, signal=SIGNAL)).path([1.0])
    assert path.best.loss < path.current.loss
    assert path.level == "solved"
    assert path.passes > len(path.descent)


@pytest.mark.parametrize("kind", ["dense", "around w0", "pcg", "head"])
def test_a_tuned_model_is_a_fit_with_these_strengths(kind: str):
    """Around a random point, which no strength changes, a fit is the same problem."""
    x, y = data(18, signal=SIGNAL)
    new = data(9, seed=3)[0]
    how = KINDS[kind] | {"head": "random"}
    if kind == "around w0":
        how |= {"body_weight_decay": 0.3}
    model = classifier(**how).fit(x, y)
    both = {"weight_decay": 0.4} if kind == "head" else {"weight_decay": 0.4, "body_weight_decay": 0.05}
    tuned, refit = model.tuned(**both, train=x), classifier(**how | both).fit(x, y)
    np.testing.assert_allclose(tuned.decision_function(new), refit.decision_function(new), atol=1e-8)
    assert tuned.report_["weight_decay"] == pytest.approx(0.4)
    assert tuned.report_["body_weight_decay"] == pytest.approx(refit.report_["body_weight_decay"])
    if kind != "pcg":
        np.testing.assert_allclose(tuned.leave_one_out().outputs, refit.leave_one_out().outputs, atol=1e-8)
        np.testing.assert_allclose(tuned.predict_proba(new), refit.predict_proba(new), atol=1e-8)
        assert tuned.leave_one_out().level == "exact"
    assert model.report_["weight_decay"] != pytest.approx(0.4)  # the model itself stays


def test_a_tuned_model_answers_questions_and_can_be_tuned_back(tmp_path):
    model, x, y = fitted("dense")
    tuned = model.tuned(0.4, 0.05, train=x)
    tuned.save(tmp_path / "run")
    again = LQFClassifier.load(tmp_path / "run", backbone=network(), device="cpu")
    analysis = again.analyse(x)
    assert analysis.level == "exact"
    back = again.tuned(model.report_["weight_decay"], model.report_["body_weight_decay"], train=x)
    np.testing.assert_allclose(back.decision_function(x), model.decision_function(x), atol=1e-8)
    np.testing.assert_allclose(back.leave_one_out().outputs, model.leave_one_out().outputs, atol=1e-8)


def test_a_path_is_a_table_and_gives_its_best_model():
    model, x, y = fitted("dense")
    path = model.tune(train=x, factors=[0.1, 1.0])
    frame = path.to_frame()
    assert len(frame) == 4 + len(path.descent)
    assert path.best.loss == min([path.current.loss, *frame["loss"]])
    tuned = model.tuned(path, train=x)
    assert tuned.report_["weight_decay"] == pytest.approx(path.best.weight_decay)
    assert "chosen by leave-one-out" in tuned.report_["plan"]
    assert "TuningPath(4 pairs" in repr(path)


def test_without_what_the_fit_kept_the_kernel_is_made_again():
    kept, x, y = fitted("dense")
    bare, _, _ = fitted("dense", keep_for_questions="none")
    paths = [tuning(m, x, y).path([0.3, 2.0], descend=False) for m in (kept, bare)]
    for a, b in zip(paths[0].grid, paths[1].grid, strict=True):
        assert a.loss == pytest.approx(b.loss, abs=1e-8)


def test_iterated_models_of_many_outputs_are_estimated_by_leave_one_out():
    model, x, y = fitted("pcg")
    path = tuning(model, x, y).path([0.3, 1.0], descend=False)
    assert path.level == "estimated"
    assert "averaged" in path.note


def test_what_cannot_be_tuned_is_refused():
    model, x, y = fitted("head")
    with pytest.raises(LQFError, match="one weight decay"):
        model.tuned(0.1, 0.2, train=x)
    with pytest.raises(LQFError, match="give a number above zero"):
        model.tuned(-1.0, train=x)
    with pytest.raises(LQFError, match="factors are"):
        model.tune(factors=[0.0], train=x)
    with pytest.raises(LQFError, match="not fitted"):
        LQFClassifier().tune()
    del y


def test_a_context_is_used_as_given():
    model, x, y = fitted("dense")
    images = opened(x, y, model.fitted_.preprocess)
    with pytest.raises(LQFError):
        StrengthSearch.of(
            replace(model.fitted_, report=replace(model.fitted_.report, solver="finetune")),
            images,
            Context(model.fitted_.settings, CPU),
        )


def stack_of(x: np.ndarray, y: np.ndarray) -> LQFClassifier:
    """A linearised network and a head, added up."""
    models = {"LQF": classifier(**FIXED).fit(x, y), "head": classifier(solver="head").fit(x, y)}
    stack = classifier()
    stack._adopt(stacked(models, (0.7, 0.3)))
    return stack


@pytest.mark.parametrize("judged", ["leave-one-out", "validation"])
def test_every_member_of_a_stack_changes(judged: str):
    x, y = data(18, signal=SIGNAL)
    stack, validation = stack_of(x, y), data(24, seed=5, signal=SIGNAL)
    path = stack.tune(*(validation if judged == "validation" else (None, None)), train=x, factors=[0.5, 3.0])
    members = [m.report for m in stack.fitted_.members]
    for tried in path.grid:
        assert tried.body_weight_decay is not None
        head, body = tried.weight_decay / members[0].weight_decay, tried.body_weight_decay / FIXED["body_weight_decay"]
        tuned = stack.tuned(tried.weight_decay, tried.body_weight_decay, train=x)
        reports = [m.report for m in tuned.fitted_.members]
        assert reports[1].weight_decay == pytest.approx(head * members[1].weight_decay)
        assert reports[0].body_weight_decay == pytest.approx(body * FIXED["body_weight_decay"])
        outputs, labels = torch.tensor(tuned.decision_function(validation[0])), torch.tensor(validation[1])
        weights = torch.ones(len(labels), dtype=torch.float64)
        if judged == "leave-one-out":
            loo = tuned.leave_one_out()
            outputs, labels, weights = loo.outputs, loo.labels, loo.weights
        assert tried.loss == pytest.approx(best_loss(outputs, labels, weights).value, abs=1e-8)
    assert path.best.loss <= path.descent[0].loss
    assert path.level == "exact"


def test_slopes_of_a_stack_are_finite_differences():
    x, y = data(18, signal=SIGNAL)
    stack, validation = stack_of(x, y), data(24, seed=5, signal=SIGNAL)
    fitted_ = stack.fitted_
    images, judging = opened(x, y, fitted_.preprocess), opened(*validation, fitted_.preprocess)
    assert_slopes(StrengthSearch.of(fitted_, images, Context(fitted_.settings, CPU), judging))
    assert_slopes(StrengthSearch.of(fitted_, images, Context(fitted_.settings, CPU)))


@pytest.mark.parametrize("kind", ["dense", "head"])
def test_a_path_is_drawn(kind: str, tmp_path):
    model, x, y = fitted(kind)
    path = tuning(model, x, y).path([0.1, 1.0, 10.0])
    path.plot(tmp_path / "path.svg")
    drawn = (tmp_path / "path.svg").read_text()
    assert "<svg" in drawn
    with pytest.raises(LQFError, match="exists"):
        path.plot(tmp_path / "path.svg")
    with pytest.raises(LQFError, match="does not end in"):
        path.plot(tmp_path / "path.txt")
    figure = draw(path)
    assert len(figure.axes) == (2 if kind == "head" else 4)  # a curve with two scales, a map with its colours


def test_with_one_output_an_iterated_model_is_known_exactly_by_leave_one_out():
    """The kernel averaged over the outputs is the problem's own then."""
    x, y = data(14, 2)
    model = classifier(**KINDS["pcg"]).fit(x, y)
    opened_again = StrengthSearch(model.fitted_, {0: Opened(model.fitted_, reopened(model, x, y))})
    path = opened_again.path([0.5, 4.0], descend=False)
    judge = opened_again.main.problem.data.judge
    for tried in path.grid:
        outputs = left_out_by_refits(at(opened_again.main.problem, ridge_of(opened_again, tried)))
        assert tried.loss == pytest.approx(best_loss(outputs, judge.labels, judge.weights).value, abs=1e-8)
    assert path.level == "exact"
    assert_slopes(opened_again)
