"""Exact leave-one-out of ridge regression against retraining."""

import pytest
import torch
from torch import Tensor

from dense import ridge_regression
from lqf.kernels.ridge import KernelRidge

N, C = 9, 2


def data(p: int) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(p)
    z = torch.randn(N, p, generator=g, dtype=torch.float64)
    return z, torch.randn(N, C, generator=g, dtype=torch.float64), torch.rand(N, generator=g, dtype=torch.float64) + 0.2


def both(z: Tensor, s: Tensor, groups: Tensor | None = None) -> list[KernelRidge]:
    return [KernelRidge.from_features(z, s, groups), KernelRidge.from_kernel(z @ z.T, s, groups)]


@pytest.mark.parametrize("p", [3, 9, 20])
@pytest.mark.parametrize("mu", [1e-3, 1.0, 50.0])
def test_residual_dual_and_loo_equal_retraining(p: int, mu: float) -> None:
    z, r, s = data(p)
    w = ridge_regression(z, r, s, mu)
    expected = torch.stack(
        [(r - z @ ridge_regression(*(t[torch.arange(N) != i] for t in (z, r, s)), mu))[i] for i in range(N)]
    )
    for ridge in both(z, s):
        torch.testing.assert_close(ridge.residual(r, mu), r - z @ w, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(z.T @ ridge.dual(r, mu), w, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(ridge.loo(r, mu), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("p", [3, 20])
def test_groups_leave_together(p: int) -> None:
    z, r, s = data(p)
    groups = torch.tensor([0, 1, 0, 2, 2, 2, 3, 1, 4])
    expected = torch.empty_like(r)
    for g in groups.unique():
        out = groups == g
        expected[out] = (r - z @ ridge_regression(z[~out], r[~out], s[~out], 0.3))[out]
    for ridge in both(z, s, groups):
        torch.testing.assert_close(ridge.loo(r, 0.3), expected, rtol=1e-8, atol=1e-9)


def test_tiny_ridge_keeps_its_digits() -> None:
    """With μ far below the eigenvalues 1 − H_ii is of the order of μ; a plain difference would lose it."""
    z, r, _ = data(20)
    kernel, mu, expected = z @ z.T, 1e-9, torch.empty_like(r)
    for i in range(N):
        keep = torch.arange(N) != i
        a = torch.linalg.solve(kernel[keep][:, keep] + mu * torch.eye(N - 1).double(), r[keep])
        expected[i] = r[i] - kernel[i, keep] @ a
    ridge = KernelRidge.from_kernel(kernel, torch.ones(N))
    torch.testing.assert_close(ridge.loo(r, mu), expected, rtol=1e-9, atol=1e-9)


def test_a_duplicate_equals_weight_two() -> None:
    z, r, s = data(5)
    twice = KernelRidge.from_features(torch.cat([z, z[:1]]), torch.cat([s, s[:1]]), torch.tensor([*range(N), 0]))
    heavy = KernelRidge.from_features(z, torch.cat([2 * s[:1], s[1:]]))
    rr = torch.cat([r, r[:1]])
    torch.testing.assert_close(twice.residual(rr, 0.4)[:N], heavy.residual(r, 0.4))
    torch.testing.assert_close(twice.loo(rr, 0.4)[:N], heavy.loo(r, 0.4))


def test_limits_of_the_ridge() -> None:
    z, r, s = data(20)
    ridge = KernelRidge.from_features(z, s)
    torch.testing.assert_close(ridge.residual(r, 1e12), r, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(ridge.residual(r, 1e-10), torch.zeros_like(r), atol=1e-8, rtol=0)
