"""Refits without each fold from kernels: the optima of problems that never had the fold, and those of iteration."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fits import FIXED, classifier, convnet, data, pictures, reopened
from lqf.fitting import TrainingProblem
from lqf.fitting.dense_refits import dense_refits
from lqf.fitting.refits import Refits
from lqf.linear.inputs import average_views
from lqf.solvers.planner import Plan
from real_refits import without_each_fold

DENSE = Plan("dense", 0.0, 0, 1 << 20, "")
GIVEN = (0.3, 2.0, 0.7, 30.0)
GROUPS = np.arange(12) // 6 * 3 + np.arange(12) % 3
"""Two groups of two samples in each of three classes."""


def posed(views: str = "none", groups: Any = None, **params: Any) -> TrainingProblem:
    """Twelve weighted pictures of three classes, with given strengths."""
    x, y = pictures(12, side=12)
    s = np.random.default_rng(0).uniform(0.5, 2, 12)
    model = classifier(backbone=convnet(), size=8, views=views, pooling="avg", **FIXED, **params).fit(
        x, y, s, groups=groups
    )
    return replace(reopened(model, x, y, s, groups), plan=DENSE)


@pytest.mark.parametrize(
    ("views", "groups", "folds"),
    [("none", None, 4), ("flip", None, 4), ("none", GROUPS, 2), ("flip", GROUPS, 2)],
    ids=["plain", "views", "groups", "views and groups"],
)
def test_outputs_are_those_of_the_optimum_that_never_had_the_fold(views: str, groups: Any, folds: int) -> None:
    problem = posed(views, groups)
    fold, mu = problem.data.folds, problem.head_fit.choice.mu
    assert int(fold.max()) + 1 == folds
    expected = without_each_fold(problem.quadratic, fold, mu)
    torch.testing.assert_close(dense_refits(problem, folds).outputs, expected, rtol=1e-9, atol=1e-9)
    whole = problem.outputs(problem.data.images, replace(problem, kernels=None, plan=None).solve(tol=1e-8).delta)
    assert not torch.allclose(average_views(expected, problem.data.n_views), whole, atol=0.1)


def test_every_fold_has_the_head_s_strength_that_it_is_given() -> None:
    problem = posed("flip")
    mu, strengths = problem.head_fit.choice.mu, GIVEN
    expected = without_each_fold(problem.quadratic, problem.data.folds, mu, strengths)
    found = dense_refits(problem, 4, strengths).outputs
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(found, dense_refits(problem, 4).outputs, atol=1e-2)


def test_one_output_and_a_network_from_a_stage_on() -> None:
    x, y = data(20, 2)
    model = classifier(linearize="second", **FIXED).fit(x, y)
    problem = replace(reopened(model, x, y), plan=DENSE)
    fold, mu = problem.data.folds, problem.head_fit.choice.mu
    expected = without_each_fold(problem.quadratic, fold, mu)
    assert expected.shape == (20, 1)
    torch.testing.assert_close(dense_refits(problem, 5).outputs, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("params", "strengths"),
    [({}, GIVEN), ({"head": "random", "form": "w0"}, ()), ({"head": "probe"}, ())],
    ids=["crossfit, given strengths", "random around w0", "probe"],
)
def test_refits_by_iteration_come_to_the_same(
    params: dict[str, Any], strengths: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lqf.fitting.refits.REFIT_TOL", 1e-11)
    problem = posed("flip", **params)
    refits = Refits(problem.quadratic, problem.head, problem.point_of, None)
    found = refits.run(problem.data.folds, strengths=strengths, products=400)
    torch.testing.assert_close(dense_refits(problem, 4, strengths).outputs, found.outputs, rtol=1e-7, atol=1e-7)


def test_only_the_first_folds_are_refitted_where_they_suffice() -> None:
    problem = posed()
    every, some = dense_refits(problem, 4).outputs, dense_refits(problem, 2).outputs
    known = problem.data.folds < 2
    assert torch.equal(some.isnan().any(1), ~known)
    assert torch.equal(some[known], every[known])


def test_labels_of_a_fold_do_not_reach_its_predictions() -> None:
    problem = posed()
    before, fold = dense_refits(problem, 4).outputs, problem.data.folds
    targets = problem.quadratic.targets.clone()
    targets[fold == 1] = targets[fold == 1].roll(1, 1)
    head = replace(problem.head, residual=targets - problem.data.constant)
    changed = replace(
        problem,
        quadratic=replace(problem.quadratic, targets=targets),
        head_fit=replace(problem.head_fit, head=head),
    )
    after = dense_refits(changed, 4).outputs
    torch.testing.assert_close(after[fold == 1], before[fold == 1], rtol=1e-10, atol=1e-10)
    assert not torch.allclose(after[fold != 1], before[fold != 1], atol=1e-2)
