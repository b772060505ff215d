"""The paper's formulae that do not hold, beside those that do: both against brute force, on real refits in float64.

N samples with one output each: g_i a row of J, residuals r at w0, in the paper's notation. "Brute force" solves the
problem again without the sample.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dense import normal_equations
from lqf.backbones.matrix_root import matrix_root
from lqf.curvature import precondition
from lqf.linear.ridge import Ridge
from problems import features, problem

N, D, LAM, OUT = 9, 5, 0.3, 4
"""Samples, weights, weight decay, the sample that leaves."""
DRAW = torch.Generator().manual_seed(0)
J, R, AT = (torch.randn(*s, generator=DRAW, dtype=torch.float64) for s in ((N, D), (N,), (D,)))
EYE = torch.eye(D, dtype=torch.float64)
KEPT = torch.arange(N) != OUT


def summed(rows: Tensor, mu: float = N * LAM) -> Tensor:
    """δ* of ½ Σ (r_i − g_i δ)² + ½ μ ‖δ‖² over some samples."""
    j, r = J[rows], R[rows]
    return torch.linalg.solve(j.T @ j + mu * EYE, j.T @ r)


def averaged(rows: Tensor) -> Tensor:
    """The same of the mean, with λ fixed: the paper's problem with the halves that its gradients have."""
    return summed(rows, LAM * int(rows.sum()))


EVERY = torch.ones(N, dtype=torch.bool)
STAR, WITHOUT = summed(EVERY), summed(KEPT)
H = J.T @ J + N * LAM * EYE
G, E = J[OUT], R[OUT] - J[OUT] @ STAR


def far(printed: Tensor, true: Tensor) -> float:
    """‖printed − true‖ relative to ‖true‖."""
    return float((printed - true).norm() / true.norm())


def test_the_change_of_the_weights_has_the_error_in_it_and_goes_the_other_way() -> None:
    """Equation 7: w* + H₋ᵢ⁻¹ gᵢ, without eᵢ; the derivation has it, with the sign of adding the sample again."""
    less = torch.linalg.inv(H - G[:, None] * G)
    true = WITHOUT - STAR
    assert far(less @ G, true) > 0.3
    assert far(less @ G * E, true) == pytest.approx(2.0)  # as far, the other way
    assert far(-less @ G * E, true) < 1e-12


def test_removing_a_sample_is_a_downdate() -> None:
    """Sherman and Morrison: (A − ggᵀ)⁻¹ = A⁻¹ + A⁻¹ggᵀA⁻¹/(1 − h); printed is A⁻¹ − A⁻¹ggᵀA⁻¹/(1 + h)."""
    inverse = torch.linalg.inv(H)
    v, h = inverse @ G, float(G @ inverse @ G)
    true = torch.linalg.inv(H - G[:, None] * G)
    outer = v[:, None] * v
    assert far(inverse - outer / (1 + h), true) > 0.05
    assert far(inverse + outer / (1 - h), true) < 1e-12


def test_the_change_of_an_output() -> None:
    """The boxed formula with the paper's A, α and 1/(N − 1): wrong for its mean loss and for the sum; ours is exact."""
    a = torch.linalg.inv(J.T @ J / (N - 1) + LAM * EYE)
    alpha, mean = float(G @ a @ G), averaged(EVERY)
    e = float(R[OUT] - G @ mean) / N
    printed = (1 - alpha / (N - 1 + alpha)) * e * float(AT @ a @ G)
    by_mean, by_sum = float(AT @ (mean - averaged(KEPT))), float(AT @ (STAR - WITHOUT))
    assert abs(printed - by_mean) > 0.1 * abs(by_mean)
    assert abs(printed - by_sum) > 0.1 * abs(by_sum)
    inverse = torch.linalg.inv(H)
    h = float(G @ inverse @ G)
    assert float(AT @ inverse @ G) * float(E) / (1 - h) == pytest.approx(by_sum, rel=1e-10)


def test_of_a_mean_with_a_fixed_decay_more_than_a_sample_leaves() -> None:
    """∇L₋ᵢ(w*) is not the sample's gradient alone: the mean of N − 1 losses leaves −λδ*/(N − 1) behind."""
    star = averaged(EVERY)
    less = torch.linalg.inv(J[KEPT].T @ J[KEPT] / (N - 1) + LAM * EYE)
    e = R[OUT] - G @ star
    true = averaged(KEPT) - star
    assert far(-less @ G * e / (N - 1), true) > 0.02
    assert far(-less @ (G * e - LAM * star) / (N - 1), true) < 1e-10


def test_the_scale_of_the_weight_decay() -> None:
    """Σ ‖αy − f‖² + λ/2 ‖δ‖² (equation 3) has its minimum at λ/2 in equation 4, not at λ; with halves at λ."""
    delta = STAR.clone().requires_grad_()
    lam = N * LAM
    slope = torch.autograd.grad((R - J @ delta).square().sum() + lam / 2 * delta.square().sum(), delta)[0]
    assert float(slope.norm()) > 0.1  # STAR is equation 4 with λ = lam
    with_halves = torch.autograd.grad(0.5 * (R - J @ delta).square().sum() + lam / 2 * delta.square().sum(), delta)[0]
    assert float(with_halves.norm()) < 1e-12
    half = summed(EVERY, lam / 2).requires_grad_()
    slope = torch.autograd.grad((R - J @ half).square().sum() + lam / 2 * half.square().sum(), half)[0]
    assert float(slope.norm()) < 1e-12


def test_the_derivative_of_a_matrix_root_is_a_sylvester_equation() -> None:
    """½ Σ^(−½) dΣ holds only where Σ and dΣ commute."""
    z, dz = (torch.randn(12, D, generator=DRAW, dtype=torch.float64) for _ in range(2))
    sigma, change = z.T @ z / 12, (dz.T @ z + z.T @ dz) / 12
    step = 1e-6
    true = (matrix_root(sigma + step * change) - matrix_root(sigma - step * change)) / (2 * step)
    assert far(0.5 * torch.linalg.inv(matrix_root(sigma)) @ change, true) > 0.1
    lam, v = torch.linalg.eigh(sigma)
    root = lam.sqrt()
    sylvester = v @ ((v.T @ change @ v) / (root[:, None] + root)) @ v.T
    assert far(sylvester, true) < 1e-7
    assert far(torch.func.jvp(matrix_root, (sigma,), (change,))[1], sylvester) < 1e-10
    commuting = sigma @ sigma  # there the printed one is right
    printed = 0.5 * torch.linalg.inv(matrix_root(sigma)) @ commuting
    assert far(printed, torch.func.jvp(matrix_root, (sigma,), (commuting,))[1]) < 1e-8


def test_under_kfac_the_largest_eigenvalue_is_not_one() -> None:
    """λ_max(P⁻¹H) ≈ 1 is expected, and η = 1 called optimal: here a step of η = 1 diverges, as P⁻¹H is not near I.

    (On ResNet-50 and three data sets it is 10 to 48: results/README.md, `eigenvalues`.)
    """
    mu = 0.01
    posed = problem("mlp", n=24, ridge=Ridge(mu, mu))
    h, _ = normal_equations(posed)
    p = precondition(posed, features(posed), draws=None)
    inverse = torch.stack([p.solve(e, posed) for e in torch.eye(len(h), dtype=torch.float64)])
    largest = float(torch.linalg.eigvals(inverse @ h).real.max())
    assert largest > 2.0
    step = torch.eye(len(h), dtype=torch.float64) - inverse @ h
    assert float(torch.linalg.eigvals(step).abs().max()) > 1.0
    step = torch.eye(len(h), dtype=torch.float64) - 1 / largest * inverse @ h
    assert float(torch.linalg.eigvals(step).abs().max()) < 1.0
