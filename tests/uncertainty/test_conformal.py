"""Conformal sets: of real refits, at their coverage, whatever the order of the samples."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fits import FIXED, classifier, data
from lqf import LQFClassifier
from lqf.analysis import Units
from lqf.errors import LQFError
from lqf.evaluation.calibration import probabilities
from lqf.uncertainty import PredictionSets, way_for
from lqf.uncertainty.conformal import p_values, voices
from lqf.uncertainty.scores import NAMES, score
from real_refits import Refitted

CASES: dict[str, dict[str, Any]] = {
    "dense": {"solver": "dense", **FIXED},
    "dense, one output": {"solver": "dense", "n_classes": 2, **FIXED},
    "dense, prefix": {"solver": "dense", "linearize": "second", **FIXED},
    "head": {"solver": "head", "weight_decay": 0.1},
    "head, one output": {"solver": "head", "n_classes": 2, "weight_decay": 0.1},
}


def fitted(case: str, *, groups: bool = False) -> tuple[LQFClassifier, Refitted, np.ndarray]:
    params = dict(CASES[case])
    n_classes = params.pop("n_classes", 3)
    x, y = data(18, n_classes, signal=0.5)
    s = np.random.default_rng(3).uniform(0.5, 2, 18)
    model = classifier(**params).fit(x, y, s, groups=np.arange(18) // 3 if groups else None)
    return model, Refitted(model, x, torch.tensor(data(5, n_classes, seed=7)[0])), y


def by_refits(model: LQFClassifier, refit: Refitted, y: np.ndarray, units: list[list[int]]) -> Tensor:
    """p-values from their definition: a real refit without every unit, on the test images and on its own samples."""
    total, beta = torch.zeros(1), model.fitted_.beta
    for unit in units:
        own = (refit.problem.targets - refit.residuals(refit.all_but(unit)))[unit]  # each through its own head
        e = -probabilities(own, beta).log()[torch.arange(len(unit)), torch.tensor(y[unit])]
        total = total + (e[:, None, None] >= -probabilities(refit.without(unit), beta).log()).double().mean(0)
    return (1 + total) / (1 + len(units))


@pytest.mark.parametrize("case", CASES)
def test_jackknife_plus_is_that_of_real_refits(case: str) -> None:
    model, refit, y = fitted(case)
    sets = model.predict_set(refit.test.numpy(), 0.8)
    assert (sets.way, sets.level) == ("jackknife+", "exact")
    torch.testing.assert_close(sets.value, by_refits(model, refit, y, [[i] for i in range(18)]))


@pytest.mark.parametrize("case", ["dense", "head"])
def test_groups_leave_together_and_count_as_one(case: str) -> None:
    model, refit, y = fitted(case, groups=True)
    units = [[3 * u, 3 * u + 1, 3 * u + 2] for u in range(6)]
    sets = model.predict_set(refit.test.numpy(), 0.8)
    torch.testing.assert_close(sets.value, by_refits(model, refit, y, units))


def test_minmax_compares_with_the_worst_and_by_class_with_its_own_samples() -> None:
    model, refit, y = fitted("dense")
    test = refit.test.numpy()
    every = torch.stack([-probabilities(refit.without([i]), model.fitted_.beta).log() for i in range(18)])
    own = (refit.problem.targets[i] - refit.residuals(refit.all_but([i]))[i] for i in range(18))
    e = torch.stack([-probabilities(o[None], model.fitted_.beta).log()[0, k] for o, k in zip(own, y, strict=True)])
    worst = model.predict_set(test, 0.8, way="minmax")
    torch.testing.assert_close(worst.value, (1 + (e[:, None, None] >= every.amin(0)).double().sum(0)) / 19)
    assert bool((worst.value >= model.predict_set(test, 0.8).value).all())
    own_class = torch.nn.functional.one_hot(torch.tensor(y))[:, None]
    by_class = model.predict_set(test, 0.8, by_class=True)
    expected = (1 + ((e[:, None, None] >= every) * own_class).double().sum(0)) / 7
    torch.testing.assert_close(by_class.value, expected)


@pytest.mark.parametrize("case", ["head", "dense, one output"])
def test_the_jackknife_needs_leave_one_out_scores_alone(case: str) -> None:
    model, refit, y = fitted(case)
    test, beta = refit.test.numpy(), model.fitted_.beta
    sets = model.predict_set(test, 0.8, way="jackknife")
    assert (sets.level, sets.guarantee) == ("estimated", None)
    own = -probabilities(model.leave_one_out().outputs, beta).log()[torch.arange(18), torch.tensor(y)]
    e = -probabilities(refit.outputs(), beta).log()
    torch.testing.assert_close(sets.value, (1 + (own[:, None, None] >= e).double().sum(0)) / 19)


def test_the_order_of_the_samples_does_not_count() -> None:
    x, y = data(18, signal=0.5)
    test, order = data(5, seed=7)[0], np.random.default_rng(1).permutation(18)
    found = []
    for some in (np.arange(18), order):
        model = classifier(solver="head", weight_decay=0.1).fit(x[some], y[some])
        model.analyse(x[some])
        found.append((model.predict_set(test), model.predict_std(test), model.novelty(test)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a.value, b.value, rtol=1e-8, atol=1e-8)


def test_coverage_of_exchangeable_images_is_above_what_is_proven_and_near_what_was_asked() -> None:
    n, covered = 30, {way: [] for way in ("jackknife+", "minmax", "jackknife")}
    for seed in range(8):
        x, y = data(n + 60, signal=0.4, seed=seed)
        order = np.random.default_rng(seed).permutation(n + 60)
        x, y = x[order], y[order]
        model = classifier(solver="head", weight_decay=0.1).fit(x[:n], y[:n])
        model.analyse(x[:n])
        for way, found in covered.items():
            found.append(model.predict_set(x[n:], 0.8, way=way).covered(y[n:]).mean())
    share = {way: float(np.mean(found)) for way, found in covered.items()}
    assert share["jackknife+"] > 0.6
    assert share["minmax"] > 0.8
    assert share["jackknife+"] == pytest.approx(0.8, abs=0.06)
    assert share["jackknife"] <= share["minmax"]


@pytest.mark.parametrize("name", NAMES)
def test_scores_follow_their_definition(name: str) -> None:
    f = torch.randn(4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = torch.softmax(0.7 * f, -1)
    for k in range(3):
        others = [j for j in range(3) if j != k]
        expected = {
            "probability": -p[..., k].log(),
            "margin": 0.7 * (f[..., others].amax(-1) - f[..., k]),
            "adaptive": (p * (p >= p[..., k, None])).sum(-1),
        }
        torch.testing.assert_close(score(name, 0.7)(f)[..., k], expected[name])
    one = f[..., :1]
    torch.testing.assert_close(score(name, 0.7)(one), score(name, 0.7)(torch.cat([torch.zeros_like(one), one], -1)))


def test_a_group_counts_as_one_sample_and_unknown_samples_do_not() -> None:
    units = Units.of(tuple("abcd"), ("x", "x", "y", "z"))
    labels, known = torch.tensor([0, 1, 1, 1]), torch.tensor([True, True, True, False])
    weights = voices(units, labels, 2, known, by_class=False)
    assert weights[:, 0].tolist() == [0.5, 0.5, 1, 0]
    assert voices(units, labels, 2, known, by_class=True).T.tolist() == [[1, 0, 0, 0], [0, 1, 1, 0]]
    own, scores = torch.tensor([1.0, 3, 2, 9]), torch.full((1, 1, 2), 2.5)
    assert p_values(own, scores, units.member, weights).tolist() == [[0.5, 0.5]]


# --- the result -------------------------------------------------------------------------------------------------------


def sets_of(p: list[list[float]], coverage: float, n: int) -> PredictionSets:
    about: dict[str, Any] = {"classes": ("a", "b"), "ids": tuple(map(str, range(len(p)))), "way": "jackknife+"}
    smallest = torch.full((2,), 1 / (n + 1), dtype=torch.float64)
    return PredictionSets(torch.tensor(p), "exact", coverage=coverage, smallest=smallest, **about)


def test_sets_are_sorted_may_be_empty_and_follow_at_any_coverage() -> None:
    sets = sets_of([[0.2, 0.9], [0.04, 0.05], [0.5, 0.02]], 0.9, 99)
    assert sets.sets == [("b", "a"), (), ("a",)]
    assert sets.sizes.tolist() == [2, 0, 1]
    assert sets.at(0.97).sets == [("b", "a"), ("b", "a"), ("a",)]
    assert sets.covered([0, 0, 0]).tolist() == [True, False, True]
    assert sets.guarantee == pytest.approx(0.8)
    assert sets.limit is None
    assert repr(sets) == "PredictionSets(3 images at coverage 0.9, 1.00 classes on average; jackknife+; exact)"


def test_numbers_stay_numbers() -> None:
    x, y = data(18)
    sets = classifier(solver="head").fit(x, y).predict_set(x[:2], way="jackknife").sets
    assert all(isinstance(k, int) for one in sets for k in one)


def test_with_too_few_samples_every_set_has_all_classes_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = data(9)
    model = classifier(solver="head", weight_decay=0.1).fit(x, y)
    model.analyse(x)
    sets = model.predict_set(x[:2], 0.95)
    assert sets.sizes.tolist() == [3, 3]
    sentence = "9 training samples are too few for a coverage of 0.95, which needs 19: every set has all classes"
    assert sets.limit == sentence
    assert model.predict_set(x[:2], 0.9).limit is None
    rare = model.predict_set(x[:2], 0.8, by_class=True).limit
    assert rare == "3 training samples are too few for a coverage of 0.8, which needs 4: every set has all classes"


@pytest.mark.parametrize("coverage", [0, 1, -0.5, 90, float("nan"), "0.9", True])
def test_a_coverage_is_a_share(coverage: Any) -> None:
    x, y = data(9)
    model = classifier(solver="head").fit(x, y)
    with pytest.raises(LQFError, match=r"coverage is .*; give the share of sets that are to hold the right class"):
        model.predict_set(x[:2], coverage)


@pytest.mark.parametrize("option", [{"way": "split"}, {"score": "aps"}])
def test_unknown_choices_are_refused(option: dict[str, str]) -> None:
    x, y = data(9)
    with pytest.raises(LQFError, match="choose one of"):
        classifier(solver="head").fit(x, y).predict_set(x[:2], **option)


def test_without_the_training_images_jackknife_plus_says_what_to_do() -> None:
    x, y = data(9)
    with pytest.raises(LQFError, match="give them again with train="):
        classifier(solver="head").fit(x, y).predict_set(x[:2])


# --- which way --------------------------------------------------------------------------------------------------------


def test_jackknife_plus_is_taken_where_leaving_out_is_exact() -> None:
    x, y = data(18)
    model = classifier(solver="head").fit(x, y).fitted_
    assert way_for(model) == "jackknife+"
    moved = replace(model.backbone, spec={**model.backbone.spec, "moved": {"rounds": 1}})
    others = {
        "by iteration": replace(model, report=replace(model.report, solver="pcg"), delta=torch.ones(1)),
        "fine-tuned": replace(model, report=replace(model.report, solver="finetune")),
        "moved": replace(model, backbone=moved),
    }
    assert {name: way_for(other) for name, other in others.items()} == dict.fromkeys(others, "jackknife")


def test_by_iteration_jackknife_plus_is_an_estimate_and_auto_takes_the_fit_s_folds() -> None:
    x, y = data(12)
    test = data(3, seed=7)[0]
    model = classifier(solver="pcg", linearize="second", batch_size=64, **FIXED).fit(x, y)
    sets = model.predict_set(test, 0.8)
    assert (sets.way, sets.level) == ("jackknife", "estimated")
    assert sets.note.startswith("leave-one-out estimated; ")
    model.analyse(x)
    assert model.predict_set(test, 0.8, way="jackknife+").level == "estimated"


def test_without_out_of_sample_outputs_there_are_no_sets() -> None:
    x, y = data(12)
    model = classifier(solver="pcg", linearize="second", batch_size=64, loo="none", **FIXED).fit(x, y)
    with pytest.raises(LQFError, match="leave-one-out is not known for this fit"):
        model.predict_set(x[:2])
