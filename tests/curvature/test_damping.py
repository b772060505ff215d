"""P for mini-batches: each kind of damping against its definition as a matrix, and what is left of the spectrum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lqf.curvature import Preconditioner, precondition
from lqf.curvature.blocks import Kronecker
from lqf.curvature.damping import DampedCurvature, Damping, body_trace, factored, head_trace
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from problems import features, problem


def curvature_of(p: QuadraticProblem, **options: Any) -> Preconditioner:
    return precondition(p, features(p), draws=None, **options)


def dense(act: Any, size: int) -> Tensor:
    return torch.stack([act(e) for e in torch.eye(size, dtype=torch.float64)], 1)


def orthonormal(n: int, r: int, seed: int) -> Tensor:
    m = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(m)[0][None, :, :r]


@pytest.mark.parametrize(("r_a", "r_g"), [(5, 3), (2, 3), (5, 1), (2, 1)])
@pytest.mark.parametrize("power", [-1.0, -0.5])
def test_factored_damping_of_products_is_the_product_of_damped_factors(r_a: int, r_g: int, power: float) -> None:
    """Also where the bases are thin: the damped factors are full matrices."""
    a, g = torch.linspace(0.3, 2, 5).double(), torch.linspace(1, 4, 3).double()
    a[r_a:], g[r_g:] = 0, 0
    u_a, u_g = orthonormal(5, 5, 0)[0], orthonormal(3, 3, 1)[0]
    block = Kronecker(u_a[None, :, :r_a], u_g[None, :, :r_g], (g[:r_g, None] * a[None, :r_a])[None])
    gamma = 0.7
    pi = float((a.mean() / g.mean()) ** 0.5)
    left = u_a @ torch.diag(a + pi * gamma**0.5) @ u_a.T
    right = u_g @ torch.diag(g + gamma**0.5 / pi) @ u_g.T
    whole = torch.kron(right, left)
    lam, u = torch.linalg.eigh(whole)
    v = torch.randn(1, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = (u @ torch.diag(lam**power) @ u.T @ v.flatten()).view_as(v)
    found = factored(block, gamma).apply(v, torch.reciprocal if power == -1 else torch.rsqrt)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["factored", "trace", "none"])
def test_the_root_of_the_inverse_twice_is_the_inverse(kind: Any) -> None:
    p = problem("convnet", ridge=Ridge(0.5, 0.2))
    damped = Damping(0.1, kind, 5).of(curvature_of(p), p)
    v = torch.randn(p.size, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    twice = damped.inverse_root(damped.inverse_root(v))
    torch.testing.assert_close(twice, damped.solve(v), rtol=1e-9, atol=1e-10)


def test_the_damping_of_before_is_the_ridge_plus_a_share_of_the_trace() -> None:
    p, rho, b = problem("mlp"), 0.3, 5
    curvature = curvature_of(p)
    plain = dense(lambda v: Damping(0.0, "none", b).of(curvature, p).solve(v), p.size)
    added = torch.full((p.size,), rho * body_trace(curvature) / (b * 3), dtype=torch.float64)
    added[: p.model.head_size] = rho * head_trace(curvature) / (b * 3)
    found = dense(lambda v: Damping(rho, "trace", b).of(curvature, p).solve(v), p.size)
    torch.testing.assert_close(
        torch.linalg.inv(found), torch.linalg.inv(plain) + torch.diag(added), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("kind", ["factored", "trace"])
def test_a_share_of_the_curvature_is_damped_as_such(kind: Any) -> None:
    """c·A + damping: what a part of the samples keeps of the curvature of all."""
    p = problem("convnet")
    curvature = curvature_of(p)
    part = replace(curvature, body=curvature.body.scaled(0.5))
    halved = {n: replace(k, d=0.5 * k.d) for n, k in curvature.body.kronecker.items()}
    channels = {n: replace(c, lam=0.5 * c.lam) for n, c in curvature.body.channels.items()}
    same = replace(curvature, body=replace(curvature.body, kronecker=halved, channels=channels))
    v = torch.randn(p.size, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    one, two = (Damping(0.2, kind, 5).of(c, p) for c in (part, same))
    torch.testing.assert_close(one.solve(v), two.solve(v), rtol=1e-9, atol=1e-11)


def counted(damped: DampedCurvature, problem: QuadraticProblem) -> tuple[float, float]:
    """The shares by all eigenvalues of A and of P, which have the same vectors."""
    undamped = Damping(0.0, "none", 5).of(damped.curvature, replace(problem, ridge=Ridge(1e-9, 1e-9)))
    a = torch.linalg.inv(dense(undamped.solve, problem.size))
    p = torch.linalg.inv(dense(damped.solve, problem.size))
    _, u = torch.linalg.eigh(a + 1e-3 * p)
    d, whole = ((u.T @ m @ u).diagonal() for m in (a, p))
    above = d > whole - d
    return float(d[above].sum() / d.sum()), float(above.double().mean())


@pytest.mark.parametrize("kind", ["factored", "trace"])
@pytest.mark.parametrize("rho", [1.0, 0.01])
def test_what_is_preconditioned_is_counted_over_all_eigenvalues(kind: Any, rho: float) -> None:
    p = problem("mlp", n=40)
    damped = Damping(rho, kind, 5).of(curvature_of(p, moment_samples=0), p)
    found = damped.preconditioned()
    by_trace, by_count = counted(damped, p)
    assert found.by_trace == pytest.approx(by_trace, abs=1e-4)
    assert found.by_count == pytest.approx(by_count, abs=2 / p.size)


def test_less_damping_preconditions_more() -> None:
    p = problem("convnet")
    curvature = curvature_of(p)
    for kind in ("factored", "trace"):
        shares = [Damping(rho, kind, 5).of(curvature, p).preconditioned() for rho in (10.0, 1.0, 0.1, 1e-3)]  # type: ignore[arg-type]
        assert sorted(s.by_trace for s in shares) == [s.by_trace for s in shares]
        assert sorted(s.by_count for s in shares) == [s.by_count for s in shares]
        assert shares[0].by_trace < shares[-1].by_trace
