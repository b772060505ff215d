"""Scores of predictions by one right-hand side for every image: right, as accurate as they say, and by few passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from closeness import relative
from fits import FIXED, classifier, data
from lqf import LQFClassifier
from lqf.analysis.by_kernel import ByKernel
from lqf.analysis.contrast import classes_of, weights_of
from lqf.utils.exactness import Answer
from passes import Passes, closely
from real_refits import Refitted

N = 24
X, Y = data(N, 3)
NEW = data(10, 3, seed=5)[0]
PCG: dict[str, Any] = {"solver": "pcg", "tol": 1e-3, "max_passes": 400, **FIXED}


def fitted(**options: Any) -> LQFClassifier:
    return classifier(**PCG | options).fit(X, Y)


def exact(analysis: Any, weights: torch.Tensor, left_out: torch.Tensor | None = None) -> torch.Tensor:
    """Effects on the scores by the dense kernel, with the leave-one-out residuals that are given."""
    method = ByKernel.of(analysis.model, analysis.problem)
    queries, units = analysis.queries(NEW), analysis.units
    p = method._response(queries)
    e = method._left_out(units) if left_out is None else left_out.reshape(-1, 1)
    return (method.dual.effects(p, e, units) * weights).sum(2)


def test_the_classes_are_the_predicted_one_and_the_runner_up() -> None:
    outputs = torch.tensor([[0.1, 0.9, 0.5], [3.0, 1.0, 2.0]])
    assert [t.tolist() for t in classes_of(outputs)] == [[1, 0], [2, 2]]
    assert [t.tolist() for t in classes_of(outputs, 2)] == [[2, 2], [1, 0]]
    first, second = classes_of(outputs)
    torch.testing.assert_close((weights_of(first, second, 3) * outputs).sum(1), torch.tensor([0.4, 1.0]).double())
    one = torch.tensor([[0.3], [-0.2]])
    first, second = classes_of(one)
    assert first.tolist() == [1, 0]
    torch.testing.assert_close((weights_of(first, second, 1) * one).sum(1), torch.tensor([0.3, 0.2]).double())


@pytest.mark.parametrize("preconditioner", ["kfac", "none"])
def test_a_solved_response_is_the_exact_one(preconditioner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    closely(monkeypatch, 1e-10)
    analysis = fitted(preconditioner=preconditioner).analyse(X)
    found = analysis.contrast(NEW)
    weights = weights_of(found.first, found.second, 3)
    expected = exact(analysis, weights, analysis.method._left_out(analysis.units))  # type: ignore[attr-defined]
    assert relative(found.effects / found.beta, expected) < 1e-7


def test_as_it_stops_order_and_values_are_those_of_the_exact_response() -> None:
    analysis = fitted().analyse(X)
    found = analysis.contrast(NEW)
    weights = weights_of(found.first, found.second, 3)
    expected = exact(analysis, weights, analysis.method._left_out(analysis.units))  # type: ignore[attr-defined]
    assert relative(found.effects / found.beta, expected) < 0.03
    ranks = [t.argsort(0).argsort(0).double() for t in (found.effects, expected)]
    for q in range(len(NEW)):
        assert float(torch.corrcoef(torch.stack([r[:, q] for r in ranks]))[0, 1]) > 0.98


def test_the_whole_effect_correlates_with_real_refits() -> None:
    model = fitted()
    refit = Refitted(model, X, torch.tensor(NEW))
    whole = refit.outputs()
    truth = torch.stack([refit.without([i]) - whole for i in range(N)])
    for quick, least in ((False, 0.7), (True, 0.4)):
        found = refit.analysis.contrast(NEW, quick=quick)
        change = (truth * weights_of(found.first, found.second, 3)).sum(2)
        assert float(torch.corrcoef(torch.stack([found.effects.flatten(), change.flatten()]))[0, 1]) > least
        assert found.level == "estimated"


def test_with_one_output_it_is_that_of_a_refit(monkeypatch: pytest.MonkeyPatch) -> None:
    closely(monkeypatch, 1e-9)
    x, y = data(N, 2)
    model = classifier(**PCG | {"tol": 1e-10, "loo": "none"}).fit(x, y)
    refit = Refitted(model, x, torch.tensor(NEW))
    found = refit.analysis.contrast(NEW)
    assert found.level == "solved"
    whole, sign = refit.outputs(), (found.first - found.second).double()
    for i in range(N):
        assert relative(found.effects[i] / found.beta, sign * (refit.without([i]) - whole)[:, 0]) < 1e-5


def test_a_class_that_was_asked_for_is_held_against_the_best_of_the_others() -> None:
    analysis = classifier(weight_decay=0.1, body_weight_decay=0.2).fit(X, Y).analyse(X)
    found = analysis.contrast(NEW, of="2")
    influence = analysis.influence(NEW)
    assert found.first.tolist() == [2] * len(NEW)
    pair = torch.stack([found.first, found.second], 1)
    gap = (influence.effects * weights_of(*pair.T, 3)).sum(2)
    torch.testing.assert_close(found.effects, found.beta * gap, rtol=1e-8, atol=1e-10)
    with pytest.raises(Exception, match="there is no class `x`"):
        analysis.contrast(NEW, of="x")


# --- passes -----------------------------------------------------------------------------------------------------------


def fit_passes(monkeypatch: pytest.MonkeyPatch) -> tuple[LQFClassifier, int]:
    """A model solved by conjugate gradients, and the sweeps of its solve: two for every pass it reports."""
    model = classifier(solver="pcg", tol=1e-3).fit(X, Y)
    return model, 2 * model.report_["passes"]


def test_one_image_takes_no_more_passes_than_the_fit_and_ten_at_once_no_more_than_four_times_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, solve = fit_passes(monkeypatch)
    passes = Passes(monkeypatch, N)
    one = passes.of(lambda: model.analyse(X).contrast(NEW[:1]))
    ten = passes.of(lambda: model.analyse(X).contrast(NEW))
    assert 3 < one <= solve
    assert ten <= 4 * one
    assert passes.of(lambda: model.analyse(X).contrast(NEW[:1], quick=True)) <= 3
    analysis = model.analyse(X)
    queries = analysis.queries(NEW[:1])
    quick = passes.of(lambda: analysis.contrast(queries, quick=True))
    assert quick + passes.of(lambda: analysis.contrast(queries)) == one  # it goes on from the quick answer


def test_a_dense_model_takes_one_pass_and_a_head_none(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, head = (classifier(solver=s).fit(X, Y) for s in ("dense", "head"))
    passes = Passes(monkeypatch, N)
    assert passes.of(lambda: dense.analyse(X).contrast(NEW)) == 1
    assert passes.of(lambda: head.analyse(X).contrast(NEW)) == 0


@pytest.mark.parametrize(("solver", "most"), [("head", 0), ("dense", 1)])
def test_what_if_takes_a_pass_at_most(solver: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = classifier(solver=solver).fit(X, Y)
    passes = Passes(monkeypatch, N)
    assert passes.of(lambda: model.analyse(X).what_if(NEW, without=range(5))) <= most


def test_what_if_takes_half_of_the_fit_s_passes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    model, solve = fit_passes(monkeypatch)
    passes = Passes(monkeypatch, N)
    assert passes.of(lambda: model.analyse(X).what_if(NEW, without=[3])) <= solve / 2


@pytest.mark.parametrize("tol", [0.3, 0.1, 1e-2, 1e-4])
@pytest.mark.parametrize("preconditioner", ["kfac", "none"])
def test_no_answer_costs_more_than_its_share_of_the_fit_s_solve_and_says_where_that_was_not_enough(
    tol: float, preconditioner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = classifier(solver="pcg", tol=tol, preconditioner=preconditioner, **FIXED).fit(X, Y)
    solve, passes = 2 * model.report_["passes"], Passes(monkeypatch, N)
    answers: list[Answer] = []
    assert passes.of(lambda: answers.append(model.analyse(X).contrast(NEW[:1]))) <= solve
    assert passes.of(lambda: answers.append(model.analyse(X).what_if(NEW[:1], without=range(5)))) <= solve // 2
    for answer, wanted in zip(answers, ("2.0%", "5.0%"), strict=True):
        reached = float(answer.note.split("within ")[1].split("%")[0]) <= float(wanted[:-1])
        assert (f"{wanted} would take more than" in answer.note) != reached
        assert reached or answer.level == "estimated"


def test_a_fit_of_few_passes_gives_few_to_its_answers_and_they_say_so() -> None:
    model = classifier(solver="pcg", tol=0.5, max_passes=1, **FIXED, unconverged="keep").fit(X, Y)
    answer = model.analyse(X).contrast(NEW[:1])
    assert answer.level == "estimated"
    assert "2.0% would take more than all passes of the fit's own solve" in answer.note


@pytest.mark.parametrize("solver", ["head", "dense", "pcg"])
def test_an_audit_takes_no_pass(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = classifier(solver=solver).fit(X, Y)
    passes = Passes(monkeypatch, N)
    assert passes.of(lambda: model.audit(X)) == 0


def test_an_audit_takes_no_pass_where_the_fit_had_kernels_of_some_samples_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("fitting.solve", "fitting.pose", "solvers.planner", "analysis.known_leverages"):
        monkeypatch.setattr(f"lqf.{module}.MOST_SAMPLES", N // 2)
    model = classifier(solver="pcg", tol=0.1).fit(X, Y)
    assert model.analyse(X).problem.remembered.averaged is None
    model.analysis_, passes = None, Passes(monkeypatch, N)
    assert passes.of(lambda: model.audit(X)) == 0
    information = model.analyse(X).information()
    assert "by the kernel of the head alone" in information.note
    assert bool((information.value >= 0).all())
    everywhere = model.analyse(X)
    monkeypatch.setattr("lqf.analysis.known_leverages.MOST_SAMPLES", N)
    both = torch.stack([information.value, everywhere.information().value])  # by the averaged kernel, made now
    assert float(torch.corrcoef(both)[0, 1]) > 0.5
