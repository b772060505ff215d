"""The formula for the expected distance, and mini-batch SGD that arrives at the exact solution."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from closeness import relative
from dense import normal_equations, optimum
from lqf.curvature import precondition
from lqf.curvature.damping import DampedCurvature, Damping
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.solvers import SGD
from lqf_paper.runner.workspace import Task
from lqf_paper.studies.convergence import convergence
from lqf_paper.studies.expected_distance import Ritz, ritz
from problems import features, problem


def damped(p: QuadraticProblem, rho: float = 0.3) -> DampedCurvature:
    return Damping(rho, "factored", 2).of(precondition(p, features(p), draws=None), p)


def trajectory(p: QuadraticProblem, pre: DampedCurvature, batches: Any, solver: SGD) -> Tensor:
    """δ after these batches of rows, from zero."""
    state, n = solver.start(p.zero()), len(p.targets)

    def direction(rows: Tensor) -> Tensor:
        pulled = p.batch_negative_gradient(rows, p.inputs.fetch(rows), state["delta"])
        return pre.solve(p.penalty_gradient(state["delta"]) - n / len(rows) * pulled)

    solver.descend(state, [torch.tensor(b) for b in batches], direction, len(batches))
    return state["delta"]


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_the_mean_of_all_trajectories_is_the_formula(momentum: float) -> None:
    """Over all sequences of two independent batches: no sampling error is left."""
    p = problem("mlp", n=4, ridge=Ridge(0.5, 0.5))
    pre, solver = damped(p), SGD(learning_rate=0.05, schedule="constant", momentum=momentum)
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    mean = torch.stack([trajectory(p, pre, seq, solver) for seq in product(pairs, repeat=2)]).mean(0)
    step = torch.stack([pre.solve(c) for c in normal_equations(p)[0].T], 1)
    e, v = -optimum(p), torch.zeros_like(p.zero())
    for _ in range(2):
        v = momentum * v + step @ e
        e = e - 0.05 * v
    torch.testing.assert_close(mean - optimum(p), e, rtol=1e-9, atol=1e-10)
    if momentum == 0:
        power = torch.linalg.matrix_power(torch.eye(p.size) - 0.05 * step, 2)
        torch.testing.assert_close(mean - optimum(p), -power @ optimum(p), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_lanczos_quadrature_is_the_energy_norm_of_the_formula(momentum: float) -> None:
    p = problem("mlp", ridge=Ridge(0.7, 0.7))
    pre, (h, _), best = damped(p), normal_equations(p), optimum(p)
    seen = ritz(lambda v: pre.inverse_root(p.product(pre.inverse_root(v))), pre.inverse_root(p.rhs()), 60)
    assert sum(seen.weights) == pytest.approx(1)
    rates = [0.1 * (1 - k / 40) for k in range(40)]
    e, v = -best, torch.zeros_like(best)
    for rate in rates:
        v = momentum * v + pre.solve(h @ e)
        e = e - rate * v
    expected = float((e @ h @ e / (best @ h @ best)).sqrt())
    assert seen.distance(rates, momentum) == pytest.approx(expected, rel=1e-8)
    assert seen.distance([], momentum) == pytest.approx(1)


def test_few_lanczos_steps_come_close() -> None:
    p = problem("convnet", ridge=Ridge(0.7, 0.7))
    pre = damped(p)
    act = lambda v: pre.inverse_root(p.product(pre.inverse_root(v)))  # noqa: E731
    few, many = (ritz(act, pre.inverse_root(p.rhs()), k) for k in (12, 60))
    rates = [0.1] * 30
    assert few.distance(rates, 0.0) == pytest.approx(many.distance(rates, 0.0), rel=0.05)


def test_one_eigenvalue() -> None:
    seen = ritz(lambda v: 2.0 * v, torch.ones(5, dtype=torch.float64), 5)
    assert seen == Ritz((pytest.approx(2.0),), (pytest.approx(1.0),))  # type: ignore[arg-type]
    assert seen.distance([0.25] * 3, 0.0) == pytest.approx(0.125)


@pytest.mark.parametrize("kfac", [True, False])
def test_more_epochs_come_nearer_to_the_exact_solution(task: Task, kfac: bool) -> None:
    how: dict[str, Any] = {
        "kfac": kfac,
        "dtype": "float64",
        "damping": 0.1,
        "weight_decay": 0.01,
        "learning_rate": "stable",
        "batch_size": 5,
    }
    few, many = (convergence(task, settings={**how, "epochs": epochs}) for epochs in (6, 90))
    assert many["distance"] < 0.5 * few["distance"] < 0.5
    assert many["distance"] == pytest.approx(many["expected"], rel=0.3, abs=0.05)
    assert few["optimum"] == many["optimum"]
    assert many["learning_rate"] == few["learning_rate"] > 0
    assert ("preconditioned" in many) == kfac


def test_where_nothing_is_left_sgd_is_at_the_solution_of_conjugate_gradients(task: Task) -> None:
    how = {"kfac": True, "dtype": "float64", "damping": 0.01, "weight_decay": 1.0, "learning_rate": "stable"}
    found = convergence(task, settings={**how, "epochs": 300, "batch_size": 15})
    assert found["distance"] < 0.02
    assert found["output_distance"] < 0.02
    assert found["test_error"] == found["test_error_of_optimum"]
    assert relative(torch.tensor([found["expected"]]), torch.tensor([found["distance"]])) < 2
