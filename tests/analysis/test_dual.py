"""Influence, leave-one-out, information and counterfactuals are those of real refits: exact in dense and head mode."""

from typing import Any

import numpy as np
import pytest
import torch

from closeness import relative
from fits import FIXED, classifier, convnet, data, pictures
from lqf.linear.targets import encode
from real_refits import Refitted

TOL = 1e-8
CASES: dict[str, dict[str, Any]] = {
    "dense": {"solver": "dense", **FIXED},
    "dense, one output": {"solver": "dense", "n_classes": 2, **FIXED},
    "dense around w0": {"solver": "dense", "form": "w0", "weight_decay": 0.1},
    "dense, random point": {"solver": "dense", "head": "random", **FIXED},
    "dense, prefix": {"solver": "dense", "linearize": "second", **FIXED},
    "dense, automatic": {"solver": "dense"},
    "head": {"solver": "head", "weight_decay": 0.1},
    "head, one output": {"solver": "head", "n_classes": 2, "weight_decay": 0.1},
    "head, automatic": {"solver": "head"},
}


def fitted(case: str, *, weights: bool = False, groups: bool = False) -> tuple[Refitted, torch.Tensor, torch.Tensor]:
    params = dict(CASES[case])
    n_classes = params.pop("n_classes", 3)
    x, y = data(18, n_classes)
    s = np.random.default_rng(3).uniform(0.5, 2, 18) if weights else None
    g = np.arange(18) // 2 if groups else None
    model = classifier(**params).fit(x, y, s, groups=g)
    test, labels = data(5, n_classes, seed=7)
    return Refitted(model, x, torch.tensor(test)), torch.tensor(y), torch.tensor(labels)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("weights", [False, True], ids=["", "weights"])
def test_every_sample_s_effect_is_that_of_a_refit_without_it(case: str, weights: bool) -> None:
    refit, _, _ = fitted(case, weights=weights)
    influence = refit.analysis.influence(refit.test.numpy())
    assert influence.level == "exact"
    whole = refit.outputs()
    assert relative(influence.outputs, whole) < TOL
    for i in range(18):
        assert relative(influence.effects[i], refit.without([i]) - whole) < TOL


@pytest.mark.parametrize("case", ["dense", "head"])
def test_groups_leave_together(case: str) -> None:
    refit, _, _ = fitted(case, groups=True, weights=True)
    influence = refit.analysis.influence(refit.test.numpy())
    assert influence.effects.shape[0] == 9
    whole = refit.outputs()
    for u in range(9):
        members = influence.units.samples(u).tolist()
        assert members == [2 * u, 2 * u + 1]
        assert relative(influence.effects[u], refit.without(members) - whole) < TOL
    some = refit.analysis.influence(refit.test.numpy(), units=["4", 0])
    torch.testing.assert_close(some.effects, influence.effects[[4, 0]], rtol=1e-12, atol=1e-12)
    assert some.units.names == ("4", "0")


@pytest.mark.parametrize("solver", ["dense", "head"])
def test_views_leave_together_and_queries_are_averaged_over_theirs(solver: str) -> None:
    x, y = pictures(12, side=40)
    decay = FIXED if solver == "dense" else {"weight_decay": 0.1}
    model = classifier(backbone=convnet(), solver=solver, size=32, views="flip", **decay).fit(x, y)
    test, _ = pictures(3, side=40, seed=5)
    analysis = model.analyse(x)
    influence = analysis.influence(test)
    np.testing.assert_allclose(influence.outputs, model.decision_function(test), rtol=1e-6, atol=1e-8)
    inputs = analysis.problem.inputs_of(analysis.queries(test).images)
    refit = Refitted(model, x, inputs.fetch(torch.arange(6)))
    mean = lambda f: f.view(3, 2, -1).mean(1)  # noqa: E731
    whole = mean(refit.outputs())
    for i in range(12):
        assert relative(influence.effects[i], mean(refit.without([i])) - whole) < TOL


@pytest.mark.parametrize("case", CASES)
def test_leave_one_out_is_the_one_of_the_fit(case: str) -> None:
    refit, _, _ = fitted(case, weights=True)
    again = refit.analysis.leave_one_out()
    fit = refit.analysis.model.loo
    assert again.level == "exact"
    assert fit is not None
    torch.testing.assert_close(again.outputs, fit.outputs.double(), rtol=1e-7, atol=1e-7)
    some = refit.analysis.leave_one_out([3, "5"])
    torch.testing.assert_close(some.outputs, again.outputs[[3, 5]])
    torch.testing.assert_close(again.probabilities().sum(1), torch.ones(18, dtype=torch.float64))


@pytest.mark.parametrize("case", CASES)
def test_what_if_is_a_refit_on_changed_data(case: str) -> None:
    refit, y, _ = fitted(case, weights=True)
    analysis, queries = refit.analysis, refit.analysis.queries(refit.test.numpy())
    factors = torch.ones(18, dtype=torch.float64)
    factors[[2, 5]], factors[7], factors[8] = 0, 2, 0.25
    labels = y.clone()
    labels[[7, 11]] = (labels[[7, 11]] + 1) % int(y.max() + 1)
    names = analysis.classes
    relabel = {"11": names[labels[11]], 7: names[labels[7]]}
    answer = analysis.what_if(queries, without=["2", 5], relabel=relabel, weights={7: 2, "8": 0.25})
    assert relative(answer.before, refit.outputs()) < TOL
    assert relative(answer.outputs - answer.before, refit.outputs(factors, labels) - refit.outputs()) < TOL
    same = analysis.what_if(queries, weights={3: 1})
    torch.testing.assert_close(same.outputs, same.before)


def test_counted_twice_equals_a_duplicate() -> None:
    x, y = data(18)
    model = classifier(head="random", **FIXED).fit(x, y)
    twice = classifier(head="random", weight_decay=0.1 * 18 / 19, body_weight_decay=0.2 * 18 / 19)
    twice.fit(np.concatenate([x, x[4:5]]), np.append(y, y[4]))
    test = data(5, seed=7)[0]
    answer = model.analyse(x).what_if(test, weights={4: 2})
    np.testing.assert_allclose(answer.outputs, twice.decision_function(test), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("case", ["dense", "dense, one output", "head"])
def test_information_is_the_mean_squared_change(case: str) -> None:
    refit, _, _ = fitted(case, weights=True)
    values = refit.analysis.information(refit.test.numpy())
    whole = refit.outputs()
    for i in range(18):
        expected = (refit.without([i]) - whole).square().sum(1).mean()
        assert float(values.values[i]) == pytest.approx(float(expected), rel=1e-8)
    assert values.standard_error is None


@pytest.mark.parametrize("case", ["dense", "head"])
def test_information_on_the_training_samples_leaves_out_the_sample_itself(case: str) -> None:
    """Each training row through its own head: what a real refit without the sample does to the others' residuals."""
    refit, _, _ = fitted(case, weights=True)
    exact, values = refit.analysis.method.dual, refit.analysis.information().values  # type: ignore[attr-defined]
    whole = refit.residuals()
    for i in range(18):
        gone = (refit.residuals(refit.all_but([i])) - whole).square().sum(1)
        assert float(values[i]) == pytest.approx(float(gone.sum() - gone[i]) / 18, rel=1e-8)
    c = 3
    e_loo = exact.out_of_sample(refit.analysis.units)
    own = torch.cat([p for p, _ in exact.own_responses(5)])
    p = own if not exact.shared else torch.kron(own, torch.eye(c, dtype=torch.float64))
    p = p.view(18, c, 18, c)
    # a row's own change is e − e_loo, which ties the responses to the leave-one-out residuals
    change = -torch.einsum("jcid,id->ijc", p, e_loo)
    e = exact.e.reshape(18, c)
    torch.testing.assert_close(change[range(18), range(18)], e - e_loo, rtol=1e-8, atol=1e-8)
    change[range(18), range(18)] = 0
    torch.testing.assert_close(values, change.square().sum((1, 2)) / 18)


def test_changes_of_scores_and_losses() -> None:
    refit, _, y = fitted("dense")
    influence = refit.analysis.influence(refit.test.numpy(), y.numpy())
    without = refit.without([6])
    whole = refit.outputs()
    k = int(whole[2].argmax())
    assert float(influence.of_class()[6, 2]) == pytest.approx(float(without[2, k] - whole[2, k]))
    assert float(influence.of_class("1")[6, 2]) == pytest.approx(float(without[2, 1] - whole[2, 1]))
    t = encode(y, 3, 15.0)
    squared = 0.5 * ((t - without).square() - (t - whole).square()).sum(1)
    torch.testing.assert_close(influence.of_loss("squared")[6], squared)
    entropy = lambda f: torch.nn.functional.cross_entropy(influence.beta * f, y, reduction="none")  # noqa: E731
    torch.testing.assert_close(influence.of_loss()[6], entropy(without) - entropy(whole))
    top = influence.top(3, of="loss")
    total = influence.of_loss().sum(1)
    assert [e.unit for e in top.helpers] == total.argsort(descending=True)[:3].tolist()
    assert [e.unit for e in top.harmers] == total.argsort()[:3].tolist()
    one = influence.top(2, query="2")
    assert one.helpers[0].change == pytest.approx(float(influence.of_class()[:, 2].min()))
    assert one.helpers[0].name == str(int(influence.of_class()[:, 2].argmin()))


def test_with_one_output_the_first_class_s_score_falls_when_the_second_s_rises() -> None:
    refit, _, _ = fitted("dense, one output")
    influence = refit.analysis.influence(refit.test.numpy())
    torch.testing.assert_close(influence.of_class(1), influence.effects[..., 0])
    torch.testing.assert_close(influence.of_class(0), -influence.effects[..., 0])


@pytest.mark.parametrize("case", ["dense", "head"])
def test_the_curve_is_of_real_refits(case: str) -> None:
    refit, _, y = fitted(case)
    x, _ = data(5, seed=7)
    queries = refit.analysis.queries(x, y.numpy())
    least, most = (refit.analysis.leaving(queries, most=m, steps=9) for m in (False, True))
    assert sorted(least.tolist()) == sorted(most.tolist()) == list(range(18))
    values = refit.analysis.information(queries).values
    assert least[:2].tolist() == values.argsort()[:2].tolist()
    assert most[:2].tolist() == values.argsort(descending=True)[:2].tolist()
    curve = refit.analysis.curve(queries, least=least, most=most, shares=(0.5,), repeats=2)
    assert curve.shares == (0.0, 0.5)
    gone = sorted(least[:9].tolist())
    keep = torch.tensor(sorted(least[9:].tolist()))
    # the second step looks at the problem without the first two
    rest = [i for i in range(18) if i not in least[:2].tolist()]
    whole = refit.without(least[:2].tolist())
    drop = [float((refit.without([*least[:2].tolist(), i]) - whole).square().sum()) for i in rest]
    assert least[2:4].tolist() == [rest[k] for k in np.argsort(drop)[:2]]
    outputs = refit.without(gone)
    torch.testing.assert_close(refit.analysis.method.refitted(queries, keep), outputs, rtol=1e-8, atol=1e-8)
    assert curve.least[1] == pytest.approx(float((outputs.argmax(1) != y).double().mean()))
    assert curve.least[0] == curve.most[0] == curve.random[0]


def test_two_copies_of_an_image_are_alike() -> None:
    x, y = data(18)
    x[9] = x[3]
    similarity = classifier(**FIXED).fit(x, y).analyse(x).similarity()
    assert similarity.pairs(0.999)[0] == pytest.approx((3, 9, 1.0))
