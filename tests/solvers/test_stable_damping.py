"""The largest eigenvalue of a batch seen through P, and what follows from it for damping and rate."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dense import optimum
from dense import rows as dense_rows
from lqf.curvature import Preconditioner, precondition
from lqf.curvature.damping import Damping
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.solvers import SGD, stable_damping
from lqf.solvers.stable_damping import allowed, largest, stable_rate
from problems import features, problem


@pytest.fixture
def many_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stable_damping, "ITERATIONS", 150)


def curvature_of(p: QuadraticProblem) -> Preconditioner:
    return precondition(p, features(p), draws=None)


def batches(p: QuadraticProblem, size: int) -> list[Any]:
    return [(rows, p.inputs.fetch(rows)) for rows in torch.arange(len(p.targets)).split(size)]


@pytest.mark.usefixtures("many_iterations")
@pytest.mark.parametrize("kind", ["factored", "trace"])
def test_it_is_the_largest_eigenvalue_of_the_batch(kind: Any) -> None:
    p = problem("mlp", weights=torch.rand(14, dtype=torch.float64) + 0.5)
    damped = Damping(0.1, kind, 4).of(curvature_of(p), p)
    index, x = torch.tensor([1, 5, 6, 11]), p.inputs.fetch(torch.tensor([1, 5, 6, 11]))
    j, _, s = dense_rows(p)
    part = 14 / 4 * torch.einsum("ncd,n,nce->de", j[index], s[index], j[index])
    seen = torch.stack([damped.solve(c) for c in part.T], 1)
    expected = float(torch.linalg.eigvals(seen).real.max())
    assert largest(damped, p, index, x) == pytest.approx(expected, rel=1e-8)


def test_few_iterations_are_below_it_and_near() -> None:
    p = problem("convnet")
    damped = Damping(0.1, "factored", 5).of(curvature_of(p), p)
    batch = batches(p, 5)[0]
    few = largest(damped, p, *batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stable_damping, "ITERATIONS", 300)
        many = largest(damped, p, *batch)
    assert 0.7 * many < few <= many * (1 + 1e-9)


@pytest.mark.parametrize("rate", [0.3, 0.03, 0.003])
def test_the_least_damping_that_stays_within_the_bound(rate: float) -> None:
    p = problem("convnet")
    curvature, given = curvature_of(p), batches(p, 5)[:2]
    how: dict[str, Any] = {"kind": "factored", "learning_rate": rate, "momentum": 0.9, "batch": 5}
    found = stable_damping.stable_damping(curvature, p, given, **how)

    def steepest(rho: float) -> float:
        damped = Damping(rho, "factored", 5).of(curvature, p)
        return rate * max(largest(damped, p, *b) for b in given)

    rhos = stable_damping.RHOS
    first = next(rho for rho in rhos if steepest(rho) <= allowed(0.9, whole=False))
    assert found.rho == first


def test_the_stable_rate_is_the_bound_over_the_largest_eigenvalue() -> None:
    p = problem("convnet")
    damped, given = Damping(0.1, "factored", 5).of(curvature_of(p), p), batches(p, 5)[:2]
    most = max(largest(damped, p, *b) for b in given)
    assert stable_rate(damped, p, given, 0.9) == pytest.approx(0.4 / 3 / most)
    assert stable_rate(damped, p, batches(p, 14), 0.9) == pytest.approx(1.9 / largest(damped, p, *batches(p, 14)[0]))


def test_a_run_at_the_stable_rate_converges_and_one_far_beyond_it_does_not() -> None:
    p = problem("convnet", n=30, ridge=Ridge(0.01, 0.01))
    damped = Damping(0.1, "factored", 5).of(curvature_of(p), p)
    rate = stable_rate(damped, p, batches(p, 5)[:2], 0.9)
    start, best = p.value(p.zero()), p.value(optimum(p))
    reached = p.value(SGD(learning_rate=rate, epochs=15, batch_size=5).solve(p, damped).delta)
    assert reached - best < 0.3 * (start - best)
    with pytest.raises(Exception, match="diverged"):
        SGD(learning_rate=40 * rate, epochs=15, batch_size=5).solve(p, damped)
