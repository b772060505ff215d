"""LogME equals the evidence by its definition, maximised by brute force, and climbs where features say more."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from lqf.selection.log_me import log_me


def evidence(f: Tensor, y: Tensor, alpha: float, beta: float) -> float:
    """log N(y; 0, I/β + FFᵀ/α), from the dense covariance."""
    covariance = torch.eye(len(f)).to(f) / beta + f @ f.T / alpha
    return float(
        -0.5 * (torch.logdet(covariance) + y @ torch.linalg.solve(covariance, y) + len(f) * math.log(2 * math.pi))
    )


def by_brute_force(f: Tensor, y: Tensor) -> float:
    """The best of several descents in log α and log β."""

    def negative(x: np.ndarray) -> float:
        return -evidence(f, y, math.exp(x[0]), math.exp(x[1]))

    starts = [(a, b) for a in (-2.0, 2.0, 8.0) for b in (0.0, 3.0)]
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 2000}
    bounds = [(-20, 20), (-20, 20)]
    found = (minimize(negative, x, method="Nelder-Mead", bounds=bounds, options=options) for x in starts)
    return -min(result.fun for result in found)


def drawn(n: int, p: int, n_classes: int = 3, noise: float = 0.5) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(n + p)
    f = torch.randn(n, p, dtype=torch.float64, generator=g)
    scores = f[:, :n_classes] + noise * torch.randn(n, n_classes, dtype=torch.float64, generator=g)
    return f, scores.argmax(1)


@pytest.mark.parametrize(("n", "p"), [(20, 6), (9, 14)])
def test_it_is_the_evidence_maximised_by_brute_force(n, p):
    f, labels = drawn(n, p)
    wanted = sum(by_brute_force(f, (labels == k).double()) for k in range(3)) / 3 / n
    assert log_me(f, labels, 3) == pytest.approx(wanted, abs=1e-6)
    assert log_me(f, labels, 3) >= wanted - 1e-9


def test_it_is_the_published_fixed_point():
    f, labels = drawn(40, 5)
    wanted = sum(fixed_point(f, (labels == k).double()) for k in range(3)) / 3
    assert log_me(f, labels, 3) == pytest.approx(wanted, abs=1e-8)


def fixed_point(f: Tensor, y: Tensor) -> float:
    """As published: α and β in turn until they stay."""
    n, p = f.shape
    u, s, v = torch.linalg.svd(f, full_matrices=False)
    alpha = beta = 1.0
    for _ in range(2000):
        gamma = float((beta * s**2 / (alpha + beta * s**2)).sum())
        m = v.T @ (beta * s / (alpha + beta * s**2) * (u.T @ y))
        alpha, beta = gamma / float(m @ m), (n - gamma) / float((f @ m - y).square().sum())
    return evidence(f, y, alpha, beta) / n


def test_features_that_say_more_have_more_evidence():
    clear, labels = drawn(60, 8, noise=0.1)
    shuffled = clear[torch.randperm(60, generator=torch.Generator().manual_seed(1))]
    assert log_me(clear, labels, 3) > log_me(shuffled, labels, 3)


def test_turning_and_scaling_the_features_changes_nothing():
    f, labels = drawn(30, 7)
    q = torch.linalg.qr(torch.randn(7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    assert log_me(100 * f @ q, labels, 3) == pytest.approx(log_me(f, labels, 3), abs=1e-8)


def test_features_without_any_length_are_no_fault():
    assert math.isfinite(log_me(torch.zeros(6, 4), torch.arange(6) % 2, 2))
