"""The problem without its head equals the dense Schur complement, and its completion is the optimum of both."""

import pytest
import torch

from cases import every_network
from dense import normal_equations, optimum
from lqf.linear.ridge import Ridge
from lqf.solvers.schur import SchurComplement
from problems import features, head_kernel, problem

WEIGHTS = torch.rand(14, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 0.5


def reduced_problem(name: str, around_w0: bool = False, n: int = 14) -> SchurComplement:
    p = problem(name, n=n, heads=2, around_w0=around_w0, ridge=Ridge(3.0, 5.0), weights=WEIGHTS[:n])
    return SchurComplement(p, features(p), head_kernel(p))


@every_network
@pytest.mark.parametrize("around_w0", [True, False])
def test_product_and_right_hand_side_are_the_schur_complement(name: str, around_w0: bool) -> None:
    reduced = reduced_problem(name, around_w0)
    h = reduced.problem.model.head_size
    full, b = normal_equations(reduced.problem)
    cross = torch.linalg.solve(full[:h, :h], full[:h, h:])
    schur, rhs = full[h:, h:] - full[h:, :h] @ cross, b[h:] - cross.T @ b[:h]
    v = torch.randn(len(rhs), dtype=torch.float64)
    scale = float((schur @ v).abs().max())
    torch.testing.assert_close(reduced.product(v), schur @ v, rtol=1e-9, atol=1e-10 * scale)
    torch.testing.assert_close(reduced.rhs(), rhs, rtol=1e-9, atol=1e-10 * float(b.abs().max()))
    assert reduced.unit() == pytest.approx(float(b.norm()), rel=1e-10)
    torch.testing.assert_close(reduced.residual(v), rhs - schur @ v, rtol=1e-9, atol=1e-10 * scale)


@pytest.mark.parametrize("n", [14, 4])  # more and fewer rows than features
def test_completion_is_the_best_head_and_leaves_no_gradient_there(n: int) -> None:
    reduced = reduced_problem("convnet", n=n)
    p, expected = reduced.problem, optimum(reduced.problem)
    h = p.model.head_size
    best = expected[h:]
    reduced.residual(best)
    delta, gap, e = reduced.complete(best)
    torch.testing.assert_close(delta, expected, rtol=1e-9, atol=1e-10)
    assert float(gap.norm()) < 1e-9 * float(p.rhs().norm())
    other = best + 0.1
    body_gap = reduced.residual(other)
    elsewhere, gap, e = reduced.complete(other)
    gradient = p.negative_gradient(elsewhere)
    torch.testing.assert_close(gradient[:h], gap, rtol=0, atol=1e-9 * float(p.rhs().norm()))
    assert float(gradient[:h].norm()) < 1e-9 * float(p.rhs().norm())
    torch.testing.assert_close(gradient[h:], body_gap, rtol=1e-8, atol=1e-8)
    assert float(gradient[h:].norm()) > 1e-3
