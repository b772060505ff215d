"""Eigenvalues by Lanczos against those of dense matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, hessian

from dense import normal_equations
from lqf.curvature import precondition
from lqf.curvature.damping import Damping
from lqf.errors import LQFError
from lqf.linear.ridge import Ridge
from lqf_paper.studies.spectrum import (
    Loss,
    Spectrum,
    largest,
    loss_curvature,
    preconditioned_curvature,
    row_curvature,
    trace,
)
from problems import features, problem


def matrix(product: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    return torch.stack([product(e) for e in torch.eye(len(like), dtype=like.dtype)])


def test_the_hessian_of_an_ordinary_loss() -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    x, y = torch.randn(11, 4).double(), torch.arange(11) % 3
    weights = dict(net.named_parameters())

    def batches() -> Iterator[Loss]:
        for x_b, y_b in zip(x.split(4), y.split(4), strict=True):
            yield lambda w, x=x_b, y=y_b: F.cross_entropy(functional_call(net, w, (x,)), y, reduction="sum")  # type: ignore[misc]

    product, like = loss_curvature(weights, batches, 11)

    def loss(flat: Tensor) -> Tensor:
        parts = flat.split([w.numel() for w in weights.values()])
        swapped = {n: p.view_as(w) for (n, w), p in zip(weights.items(), parts, strict=True)}
        return F.cross_entropy(functional_call(net, swapped, (x,)), y)

    dense = hessian(loss)(torch.cat([w.detach().reshape(-1) for w in weights.values()]))
    torch.testing.assert_close(matrix(product, like), dense, atol=1e-12, rtol=1e-10)
    found = largest(product, like, 6, tol=1e-12)
    assert found.values == pytest.approx(torch.linalg.eigvalsh(dense).flip(0)[:6].tolist(), rel=1e-8)
    assert found.products > 6
    assert found.size == len(like)


@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_with_one_ridge_strength_rows_tell_the_spectrum_of_the_linear_quadratic_problem(name: str) -> None:
    p = problem(name, n=9, ridge=Ridge(0.7, 0.7))
    product, like, decay = row_curvature(p)
    found = largest(product, like, 8, tol=1e-12).shifted(decay, p.size)
    expected = torch.linalg.eigvalsh(normal_equations(p)[0] / p.weights.sum()).flip(0)[:8]
    assert found.values == pytest.approx(expected.tolist(), rel=1e-8)
    assert found.condition == pytest.approx(float(expected[0] / expected[7]), rel=1e-8)
    assert (len(like), found.size) == (p.targets.numel(), p.size)
    with pytest.raises(LQFError, match="one ridge strength"):
        row_curvature(problem(name, n=9, ridge=Ridge(0.7, 0.4)))


@pytest.mark.parametrize("kind", ["none", "trace", "factored"])
@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_preconditioned_eigenvalues_are_those_of_the_inverse_times_the_hessian(name: str, kind: Any) -> None:
    p = problem(name, n=9, ridge=Ridge(0.7, 0.4))
    damped = Damping(0.5, kind, 5).of(precondition(p, features(p), draws=None), p)
    inverse = matrix(damped.solve, p.zero())
    expected = torch.linalg.eigvals(inverse @ normal_equations(p)[0]).real.sort(descending=True).values[:8]
    found = largest(preconditioned_curvature(p, damped), p.zero(), 8, tol=1e-12)
    assert found.values == pytest.approx(expected.tolist(), rel=1e-7)


@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_the_inverse_root_squared_is_the_inverse(name: str) -> None:
    p = problem(name, n=9, ridge=Ridge(0.7, 0.4))
    kfac = precondition(p, features(p), draws=None)
    v = torch.randn_like(p.zero())
    twice = kfac.inverse_root(kfac.inverse_root(v, p), p)
    torch.testing.assert_close(twice, kfac.solve(v, p), rtol=1e-9, atol=1e-12)


def test_a_trace_by_random_signs() -> None:
    a = torch.randn(30, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    a = a @ a.T
    like = torch.zeros(30, dtype=torch.float64)
    rough, fine = (abs(trace(lambda v: a @ v, like, probes) - float(a.trace())) for probes in (4, 4000))
    spread = (2 * (a - a.diag().diag()).square().sum() / 4000) ** 0.5  # of a mean over 4,000 probes
    assert fine < 4 * float(spread)
    assert fine < rough
    diagonal = torch.arange(30.0)
    assert trace(lambda v: diagonal * v, torch.zeros(30), 1) == float(diagonal.sum())  # without variance


def test_the_mean_of_a_shifted_spectrum() -> None:
    found = Spectrum((8.0, 4.0), 10, 3, mean=2.0)
    assert found.prominence == 4.0
    moved = found.shifted(1.0, 99)
    assert (moved.values, moved.mean, moved.prominence, moved.size) == ((9.0, 5.0), 3.0, 3.0, 99)
    assert Spectrum((8.0,), 10, 3).prominence is None


def test_too_many_eigenvalues_are_refused() -> None:
    with pytest.raises(LQFError, match="ask for 1 to 4"):
        largest(lambda v: v, torch.zeros(5), 5)
