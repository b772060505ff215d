"""Plans by the size of a problem alone, and strengths of the stages on their way from the choice to the solution."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dense import optimum
from fits import (
    SMALL,
    brute_outputs,
    classifier,
    convnet,
    data,
    network,
    opened,
    outline,
    pictures,
    problem_of,
    reopened,
)
from lqf import LQFClassifier
from lqf.backbones import load_backbone
from lqf.data import Preprocess
from lqf.fitting import TrainingProblem
from lqf.fitting.checkpoint import Checkpoint
from lqf.fitting.point import crossfit_point
from lqf.fitting.pose import DENSE_PAIRS, planned_by_size, with_strengths
from lqf.linear.ridge import Ridge
from lqf.linear.targets import error_rate
from lqf.settings import Settings
from lqf.solvers.planner import Plan

X, Y = data(30, signal=0.8)
Y[:6] = (Y[:6] + 1) % 3  # some labels are wrong
NEW = torch.tensor(data(6, seed=7)[0])
pytestmark = pytest.mark.usefixtures("one_thread")


def posed(n: int = 18, n_classes: int = 3, **settings: Any) -> TrainingProblem:
    """Without a plan, around the point of a head."""
    given = {"dtype": "float64", **settings}
    return outline(Settings(**given), load_backbone(network()), opened(*data(n, n_classes), Preprocess()), Preprocess())


# --- plans ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be timed, and nothing that was timed before may be looked up."""

    def timed(*_: Any, **__: Any) -> None:
        raise AssertionError("something was timed")

    monkeypatch.setattr("lqf.solvers.planner.Rates.measure", timed)
    monkeypatch.setattr("lqf.fitting.pose.recall", timed)


def solver_of(problem: TrainingProblem) -> str:
    plan = planned_by_size(problem, 1.0).plan
    assert plan is not None
    return plan.solver


@pytest.mark.usefixtures("no_timing")
def test_few_pairs_of_a_row_and_an_output_are_solved_densely() -> None:
    most = DENSE_PAIRS["cpu"]
    assert most % 3 == 0
    assert solver_of(posed(most // 3)) == "dense"
    assert solver_of(posed(most // 3 + 1)) == "pcg"
    assert solver_of(posed(most // 3 + 1, 2)) == "dense"  # two classes have one output


@pytest.mark.usefixtures("no_timing")
@pytest.mark.parametrize(("most", "solver"), [(72, "dense"), (71, "pcg")])
def test_every_view_is_a_row(most: int, solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DENSE_PAIRS, "cpu", most)
    settings = Settings(dtype="float64", views="flip")
    problem = outline(settings, load_backbone(convnet()), opened(*pictures(12), SMALL), SMALL)
    assert solver_of(problem) == solver


@pytest.mark.usefixtures("no_timing")
def test_the_plan_has_the_seconds_that_are_expected_and_is_always_the_same() -> None:
    problem = posed()
    plan = planned_by_size(problem, 90.0).plan
    assert plan is not None
    assert (plan.seconds, plan.sentence) == (90.0, "dense, about 90 s")
    assert 0 < plan.jacobian_bytes <= problem.context.free_bytes()
    again = planned_by_size(posed(), 90.0).plan
    assert again is not None
    assert (again.solver, again.sentence) == (plan.solver, plan.sentence)


@pytest.mark.parametrize("solver", ["dense", "pcg", "sgd", "adam"])
def test_a_solver_that_is_named_is_planned_as_ever(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Plan(solver, 5.0, 7, 1 << 20, "as ever")
    seen = []
    monkeypatch.setattr("lqf.fitting.pose._plan", lambda problem: seen.append(problem) or given)
    problem = posed(solver=solver)
    assert planned_by_size(problem, 1.0).plan == given
    assert seen == [problem]
    assert planned_by_size(posed(), 1.0).plan != given  # no solver is named


@pytest.mark.usefixtures("no_timing")
def test_a_named_solver_is_timed() -> None:
    with pytest.raises(AssertionError, match="something was timed"):
        planned_by_size(posed(solver="pcg"), 1.0)


@pytest.mark.parametrize("most", [54, 53], ids=["dense", "pcg"])
def test_what_is_planned_can_be_solved(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DENSE_PAIRS, "cpu", most)
    problem = with_strengths(planned_by_size(posed(tol=1e-9, max_passes=300), 1.0), Ridge(2.0, 5.0))
    found: Tensor = problem.solve().delta
    assert problem.ridge == Ridge(2.0, 5.0)
    torch.testing.assert_close(found, optimum(problem.quadratic), rtol=1e-6, atol=1e-6)


# --- a strength for every stage ---------------------------------------------------------------------------------------


def by_stages(**params: Any) -> LQFClassifier:
    return classifier(**{"strengths": "stages", "tol": 1e-9, "max_passes": 300, **params})


def stages_of(model: LQFClassifier) -> dict[str, float]:
    """Strengths of the stages over the body's."""
    ridge = model.fitted_.report.ridge
    assert [name for name, _ in ridge.stages] == ["first", "second"]
    return {name: mu / ridge.body for name, mu in ridge.stages}


@pytest.mark.parametrize(
    "params", [{}, {"solver": "pcg", "loo": "none"}, {"head": "probe"}], ids=["dense", "pcg", "probe"]
)
def test_a_named_solver_solves_with_the_strengths_that_were_chosen(params: dict[str, Any]) -> None:
    model = by_stages(**params).fit(X, Y)
    problem = problem_of(model, X, Y)
    assert problem.ridge == model.fitted_.report.ridge
    assert abs(stages_of(model)["first"] / stages_of(model)["second"] - 1) > 0.1
    expected = brute_outputs(problem, optimum(problem), NEW)
    torch.testing.assert_close(torch.tensor(model.decision_function(NEW.numpy())), expected, rtol=1e-6, atol=1e-6)
    if not params:
        for i in range(len(X)):
            e = problem.residuals(optimum(problem, torch.arange(len(X)) != i))
            torch.testing.assert_close(model.leave_one_out().outputs[i], (problem.targets - e)[i], rtol=1e-8, atol=1e-8)


def test_the_bias_of_a_point_is_measured_at_these_strengths() -> None:
    model = by_stages(head="probe").fit(X, Y)
    training, loo = reopened(model, X, Y), model.leave_one_out()
    blind = crossfit_point(training.head, model.report_["point_ridge"], training.data.folds)
    quadratic = training.quadratic
    other = replace(quadratic, model=replace(quadratic.model, heads=blind.heads), fold=blind.fold)
    rows = [(other.targets - other.residuals(optimum(other, torch.arange(len(X)) != i)))[i] for i in range(len(X))]
    bias = 100 * (error_rate(torch.stack(rows), torch.tensor(Y)) - loo.error)
    assert loo.note.endswith(f"which flatters it by about {bias:.1f} points")


@pytest.mark.parametrize("solver", ["dense", "pcg"])
def test_a_moved_network_has_stages_of_the_same_relative_strengths(solver: str) -> None:
    plain, moved = (by_stages(solver=solver, relinearize=n, loo="none").fit(X, Y) for n in (0, 1))
    assert stages_of(moved) == pytest.approx(stages_of(plain), rel=1e-6)
    assert moved.report_["moved"]["steps"]


def test_a_resumed_fit_has_the_strengths_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", lambda self, vectors, state, force=False: save(self, vectors, state, True))
    params = {"solver": "pcg", "loo": "none"}
    begun = by_stages(max_passes=4, unconverged="keep", **params).fit(X, Y, checkpoint=tmp_path / "kept")
    assert not begun.report_["converged"]
    monkeypatch.setattr("lqf.fitting.pose.nested_choice", lambda *_: pytest.fail("chosen again"))
    after = by_stages(**params).fit(X, Y, checkpoint=tmp_path / "kept", resume=True)
    assert stages_of(after) == pytest.approx(stages_of(begun), rel=1e-9)
    monkeypatch.undo()
    whole = by_stages(**params).fit(X, Y)
    np.testing.assert_allclose(after.decision_function(X), whole.decision_function(X), rtol=1e-5, atol=1e-5)
