"""Products, gradients and values of the objective against dense matrices."""

import pytest
import torch

from cases import every_network
from dense import optimum, ridge_matrix, rows
from lqf.linear.problem import Ridge
from problems import features, problem


@every_network
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("around_w0", [True, False])
def test_passes_match_dense_matrices(name: str, heads: int, around_w0: bool) -> None:
    weights = torch.rand(14, dtype=torch.float64) + 0.5
    p = problem(name, heads=heads, around_w0=around_w0, ridge=Ridge(0.3, 2.0), weights=weights)
    j, r, s = rows(p)
    flat, w = j.flatten(0, 1), s.repeat_interleave(j.shape[1])
    h = flat.T @ (w[:, None] * flat) + torch.diag(ridge_matrix(p))
    b = flat.T @ (w * r.flatten())
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


def test_binary_is_one_column_of_the_one_hot_problem() -> None:
    """With a head W, −W at the point the two-output problem's optimum is the one-output one and its mirror image."""
    p = problem("convnet", n_classes=2, around_w0=False)
    j, r, _ = rows(p)
    both_j = torch.cat([torch.cat([-j, torch.zeros_like(j)], -1), torch.cat([torch.zeros_like(j), j], -1)], 1).flatten(
        0, 1
    )
    both_r = torch.cat([-r, r], 1).flatten()
    two = torch.linalg.solve(both_j.T @ both_j + 0.7 * torch.eye(2 * p.size).double(), both_j.T @ both_r)
    torch.testing.assert_close(two[p.size :], optimum(p), rtol=1e-8, atol=1e-8)


def test_large_ridge_gives_w0() -> None:
    assert float(optimum(problem(ridge=Ridge(1e14, 1e14))).abs().max()) < 1e-8
