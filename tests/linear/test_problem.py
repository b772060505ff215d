"""Products, gradients and values of the objective against dense matrices."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from cases import every_network
from closeness import relative
from dense import normal_equations, optimum, ridge_matrix, rows
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.solvers.solution import Solution
from problems import features, problem, solve_dense, solve_pcg


@every_network
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("around_w0", [True, False])
def test_passes_match_dense_matrices(name: str, heads: int, around_w0: bool) -> None:
    weights = torch.rand(14, dtype=torch.float64) + 0.5
    p = problem(name, heads=heads, around_w0=around_w0, ridge=Ridge(0.3, 2.0), weights=weights)
    j, r, s = rows(p)
    h, b = normal_equations(p)
    v = torch.randn(p.size, dtype=torch.float64)
    close = {"rtol": 1e-10, "atol": 1e-9}
    torch.testing.assert_close(p.product(v), h @ v, **close)
    torch.testing.assert_close(p.rhs(), b, **close)
    gap, e = p.measure(v)
    torch.testing.assert_close(gap, b - h @ v, **close)
    torch.testing.assert_close(e, r - j @ v, **close)
    torch.testing.assert_close(p.residuals(v), r - j @ v, **close)
    torch.testing.assert_close(p.initial_residual(features(p)), r, **close)
    assert p.value(v) == pytest.approx(
        float(0.5 * (s[:, None] * (r - j @ v) ** 2).sum() + 0.5 * v @ (ridge_matrix(p) * v))
    )


def test_binary_tasks_have_one_output() -> None:
    p = problem(n_classes=2)
    assert p.targets.shape[1] == 1
    assert p.targets.unique().tolist() == [-7.5, 7.5]


def with_an_output_per_class(p: QuadraticProblem) -> QuadraticProblem:
    """The same two classes with one-hot targets, the heads −W and W at the point, and a body penalised for both."""
    model = replace(p.model, heads=torch.cat([-p.model.heads, p.model.heads], 1), constant=7.5)
    targets = 15.0 * torch.nn.functional.one_hot((p.targets[:, 0] > 0).long(), 2).to(p.targets)
    return replace(p, model=model, targets=targets, ridge=Ridge(p.ridge.head, 2 * p.ridge.body))


def mirrored(p: QuadraticProblem, delta: torch.Tensor) -> torch.Tensor:
    """The unknowns of one output as those of two: V becomes −V and V."""
    head, body = p.model.split(delta)
    return torch.cat([-head.flatten(), head.flatten(), body])


def test_binary_is_one_column_of_the_one_hot_problem() -> None:
    """With the heads −W and W at the point the two-output optimum is the one-output one and its mirror image."""
    p = problem("convnet", n_classes=2, around_w0=False)
    two = with_an_output_per_class(p)
    v = torch.randn(p.size, dtype=torch.float64)
    assert two.value(mirrored(p, v)) == pytest.approx(2 * p.value(v), rel=1e-12)
    torch.testing.assert_close(two.residuals(mirrored(p, v)), p.residuals(v) * torch.tensor([-1.0, 1.0]))
    one = solve_dense(p).delta
    for found in (solve_dense(two).delta, solve_pcg(two).delta):
        assert relative(found, mirrored(p, one)) < 1e-8
    assert relative(one, optimum(p)) < 1e-9


@pytest.mark.parametrize("solve", [solve_dense, solve_pcg])
def test_large_ridge_gives_w0(solve: Callable[[QuadraticProblem], Solution]) -> None:
    """μδ* tends to b, and the outputs to those at w0."""
    p = problem(ridge=Ridge(1e8, 1e8))
    delta = solve(p).delta
    assert float(delta.abs().max()) < 1e-4
    assert relative(1e8 * delta, normal_equations(p)[1]) < 1e-4
    assert relative(p.residuals(delta), rows(p)[1]) < 1e-4
