"""Answers about a stack add up: they are those of all its members really refitted, each in its own views."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from closeness import relative
from finetuned_models import tuned_model
from fits import classifier, convnet
from lqf import LQFClassifier
from lqf.analysis import Analysis
from lqf.errors import LQFError
from lqf.fitting import Stack
from passes import closely
from refitted_stacks import NEW, WEIGHTS, N, RefittedStack, X, Y, adopting, fitted_members, stack_of

TOL = 1e-8
S = np.random.default_rng(3).uniform(0.5, 2, N)
GROUPS = np.arange(N) // 6 * 3 + np.arange(N) % 3


class Case:
    """A stack, its analysis, and the real refits of its members."""

    def __init__(self, groups: np.ndarray | None = None):
        self.members: list[LQFClassifier] = fitted_members(S, groups)
        self.model = adopting(self.members)
        self.analysis: Analysis = self.model.analyse(X)
        self.refit = RefittedStack(self.members)


@pytest.fixture(scope="module")
def case() -> Case:
    return Case()


def test_every_sample_s_effect_is_that_of_members_refitted_without_it(case: Case) -> None:
    influence, whole = case.analysis.influence(NEW), case.refit.outputs()
    assert influence.level == "exact"
    assert "a stack of rung 0 (25%), rung 1 (45%), rung 2 (30%)" in influence.note
    assert relative(influence.outputs, whole) < TOL
    np.testing.assert_allclose(influence.outputs, case.model.decision_function(NEW), rtol=1e-8, atol=1e-8)
    for i in range(N):
        assert relative(influence.effects[i], case.refit.without([i]) - whole) < TOL


def test_effects_add_up_over_the_members(case: Case) -> None:
    found = [m.analyse(X).influence(NEW).effects for m in case.members]
    expected = torch.stack([w * e for w, e in zip(WEIGHTS, found, strict=True)]).sum(0)
    torch.testing.assert_close(case.analysis.influence(NEW).effects, expected, rtol=1e-9, atol=1e-12)
    some = case.analysis.influence(NEW, units=["5", 2])
    torch.testing.assert_close(some.effects, expected[[5, 2]], rtol=1e-9, atol=1e-12)


def test_what_if_is_that_of_members_refitted_on_changed_data(case: Case) -> None:
    factors, labels = torch.ones(N, dtype=torch.float64), torch.tensor(Y)
    factors[[2, 5]], factors[7] = 0, 2
    labels[[7, 11]] = (labels[[7, 11]] + 1) % 3
    relabel = {i: str(int(labels[i])) for i in (7, 11)}
    answer = case.analysis.what_if(NEW, without=[2, "5"], relabel=relabel, weights={7: 2})
    assert relative(answer.before, case.refit.outputs()) < TOL
    assert relative(answer.outputs - answer.before, case.refit.outputs(factors, labels) - answer.before) < TOL


def test_leave_one_out_is_that_of_members_refitted_without_the_sample(case: Case) -> None:
    found = case.analysis.leave_one_out()
    torch.testing.assert_close(found.outputs, case.refit.out_of_sample(torch.arange(N)), rtol=TOL, atol=TOL)
    assert isinstance(case.model.fitted_, Stack)
    assert case.model.fitted_.loo is not None
    torch.testing.assert_close(found.outputs, case.model.fitted_.loo.outputs, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(case.analysis.leave_one_out([4, "1"]).outputs, found.outputs[[4, 1]])


def test_groups_leave_all_members_together() -> None:
    case = Case(GROUPS)
    influence, whole = case.analysis.influence(NEW), case.refit.outputs()
    assert len(influence.units) == 6
    for u in range(6):
        gone = influence.units.samples(u).tolist()
        assert GROUPS[gone].tolist() == [GROUPS[gone[0]]] * 2
        assert relative(influence.effects[u], case.refit.without(gone) - whole) < TOL
    expected = case.refit.out_of_sample(torch.tensor(GROUPS))
    torch.testing.assert_close(case.analysis.leave_one_out().outputs, expected, rtol=TOL, atol=TOL)


def test_kept_samples_are_fitted_by_all_members(case: Case) -> None:
    keep, factors = torch.tensor([0, 1, 2, 4, 6, 8, 9, 11]), torch.zeros(N, dtype=torch.float64)
    factors[keep] = 1
    found = case.analysis.method.refitted(case.analysis.queries(NEW), keep)
    assert relative(found, case.refit.outputs(factors)) < TOL


def test_information_is_the_main_member_s_and_says_so(case: Case) -> None:
    main = case.members[1].analyse(X)
    assert case.analysis.problem.data.n_views == 2
    answer = case.analysis.information(NEW)
    torch.testing.assert_close(answer.value, main.information(NEW).value, rtol=1e-10, atol=0)
    torch.testing.assert_close(case.analysis.information().value, main.information().value, rtol=1e-10, atol=0)
    assert answer.level == "estimated"
    assert "of rung 1 alone" in answer.note
    assert torch.equal(case.analysis.leaving(NEW, steps=3), main.leaving(NEW, steps=3))


def test_a_stack_is_as_exact_as_its_least_exact_member(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    closely(monkeypatch, 0.05, share=33.0)
    solved = case.model.analyse(X, method="pcg")
    assert solved.level == "solved"
    assert [m.level for m in solved.method.methods] == ["solved", "exact", "solved"]  # type: ignore[attr-defined]
    answer = solved.what_if(NEW, without=[3])
    assert answer.level == "solved"
    assert relative(answer.outputs, case.refit.without([3])) < 1e-2


# --- with a member that has no closed form ----------------------------------------------------------------------------


class Mixed:
    """Two members that were solved for, and a fine-tuned one with the largest share, which predicts in other views."""

    weights = (0.2, 0.3, 0.5)

    def __init__(self) -> None:
        solved = fitted_members(S)[:2]
        self.tuned = tuned_model(X, Y, sample_weight=S, shown="crops4")
        self.model = classifier(backbone=convnet(), size=8)
        self.stack = stack_of([*(m.fitted_ for m in solved), self.tuned], self.weights)
        self.model._adopt(self.stack)
        self.analysis = self.model.analyse(X)
        self.answers = [m.analyse(X) for m in solved]
        alone = classifier(backbone=convnet(), size=8)
        alone._adopt(self.tuned)
        self.of_tuned = torch.tensor(alone.decision_function(NEW))

    def added(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Of the members in order, with their weights."""
        return torch.stack([w * p for w, p in zip(self.weights, parts, strict=False)]).sum(0)


@pytest.fixture(scope="module")
def mixed() -> Mixed:
    return Mixed()


def test_the_largest_member_that_was_solved_for_answers(mixed: Mixed) -> None:
    assert mixed.stack.main is mixed.tuned
    assert mixed.stack.answering is mixed.stack.members[1]
    assert mixed.analysis.problem.data.preprocess == mixed.stack.members[1].preprocess
    alone = stack_of([mixed.tuned], (1.0,))
    assert alone.answering is mixed.tuned


def test_the_member_that_cannot_answer_is_named_with_its_share(mixed: Mixed) -> None:
    influence = mixed.analysis.influence(NEW)
    assert influence.level == mixed.analysis.level == "estimated"
    assert influence.note.startswith(
        "a stack of rung 0 (20%), rung 1 (30%), rung 2 (50%); without an answer of rung 2 (50%), which stays as it is"
    )
    solved = adopting(fitted_members(S)).analyse(X)
    assert "without an answer" not in solved.note


def test_effects_are_the_weighted_sum_over_the_members_that_answer(mixed: Mixed) -> None:
    influence = mixed.analysis.influence(NEW)
    expected = mixed.added([a.influence(NEW).effects for a in mixed.answers])
    torch.testing.assert_close(influence.effects, expected, rtol=1e-9, atol=1e-12)
    some = mixed.analysis.influence(NEW, units=["5", 2])
    torch.testing.assert_close(some.effects, expected[[5, 2]], rtol=1e-9, atol=1e-12)
    outputs = mixed.added([*(a.influence(NEW).outputs for a in mixed.answers), mixed.of_tuned])
    torch.testing.assert_close(influence.outputs, outputs, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(influence.outputs, mixed.model.decision_function(NEW), rtol=1e-9, atol=1e-9)


def test_what_if_leaves_the_fine_tuned_member_as_it_is(mixed: Mixed) -> None:
    change = {"without": [2], "relabel": {7: "0"}, "weights": {3: 2.0}}
    found = mixed.analysis.what_if(NEW, **change)
    expected = mixed.added([*(a.what_if(NEW, **change).outputs for a in mixed.answers), mixed.of_tuned])
    torch.testing.assert_close(found.outputs, expected, rtol=1e-9, atol=1e-9)
    assert float((found.outputs - found.before).abs().max()) > 1e-2
    assert "without an answer of rung 2 (50%)" in found.note


def test_leave_one_out_takes_the_networks_without_each_fold(mixed: Mixed) -> None:
    assert mixed.tuned.loo is not None
    found = mixed.analysis.leave_one_out()
    expected = mixed.added([*(a.leave_one_out().outputs for a in mixed.answers), mixed.tuned.loo.outputs])
    torch.testing.assert_close(found.outputs, expected, rtol=1e-9, atol=1e-9)
    assert found.note.endswith("by networks that were made up")
    torch.testing.assert_close(mixed.analysis.leave_one_out([4, "1"]).outputs, expected[[4, 1]], rtol=1e-9, atol=1e-9)
    unknown = replace(mixed.stack, members=(*mixed.stack.members[:2], replace(mixed.tuned, loo=None)))
    model = classifier(backbone=convnet(), size=8)
    model._adopt(unknown)
    with pytest.raises(LQFError, match="fine-tuned member of the stack"):
        model.analyse(X).leave_one_out()


def test_information_is_that_of_the_largest_member_that_answers(mixed: Mixed) -> None:
    second = mixed.answers[1]
    answer = mixed.analysis.information(NEW)
    torch.testing.assert_close(answer.value, second.information(NEW).value, rtol=1e-10, atol=0)
    assert answer.note.endswith("of rung 1 alone")
    assert torch.equal(mixed.analysis.leaving(NEW, steps=3), second.leaving(NEW, steps=3))


def test_kept_samples_are_fitted_by_the_members_that_can(mixed: Mixed) -> None:
    keep = torch.tensor([0, 1, 2, 4, 6, 8, 9, 11])
    found = mixed.analysis.method.refitted(mixed.analysis.queries(NEW), keep)
    expected = mixed.added([*(a.method.refitted(a.queries(NEW), keep) for a in mixed.answers), mixed.of_tuned])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_an_audit_of_such_a_stack_says_what_it_rests_on(mixed: Mixed) -> None:
    audit = mixed.model.audit(X)
    assert audit.loo_error == mixed.stack.loo.error  # type: ignore[union-attr]
    assert "without an answer of rung 2 (50%)" in audit.levels["information"]["note"]
    assert len(audit.information) == N
