"""LogME: the evidence of a linear model of the labels on given features (You, Liu, Wang, Long 2021).

For the 0/1 column y of a class w ~ N(0, α⁻¹I) and y ~ N(Fw, β⁻¹I), so y ~ N(0, β⁻¹(I + FFᵀ/λ)) with λ = α/β. Given
λ the best β is n / yᵀ(I + FFᵀ/λ)⁻¹y, and what is left,

    log p(y | λ) = ½n log β − ½n(1 + log 2π) − ½ Σ_k log(1 + σ_k²/λ),

is a function of one variable, maximised on a grid and between its points; the published fixed point in α and β climbs
to a maximum of the same function. LogME is its mean over the classes, per sample.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOWEST, HIGHEST, POINTS = -12.0, 12.0, 193
"""Exponents of ten of λ over the mean eigenvalue of FFᵀ, and how many of them are tried at first."""
REFINEMENTS = 12
"""Times that the grid is made anew between the neighbours of its best point, with a fourth of the step."""


def log_me(features: Tensor, labels: Tensor, n_classes: int) -> float:
    """Mean over the classes of the largest log evidence per sample, from features (n, p) and labels (n,)."""
    f = features.double()
    y = torch.nn.functional.one_hot(labels.to(f.device), n_classes).double()  # (n, C)
    n = len(f)
    squares, u = torch.linalg.eigh(f @ f.T) if n <= f.shape[1] else _through_features(f)
    squares = squares.clamp_min(0)
    inside = (u.T @ y).square()  # (k, C)
    outside = (y.square().sum(0) - inside.sum(0)).clamp_min(0)
    unit = float(squares.sum()) / n or 1.0
    return float(_largest(squares / unit, inside, outside, n).mean()) / n


def _through_features(f: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (k,) and eigenvectors (n, k) of FFᵀ that FᵀF reaches."""
    u, s, _ = torch.linalg.svd(f, full_matrices=False)
    return s.square(), u


def _largest(squares: Tensor, inside: Tensor, outside: Tensor, n: int) -> Tensor:
    """(C,) the largest evidence of every class."""
    centre, half, points = torch.zeros(inside.shape[1]).to(squares), (HIGHEST - LOWEST) / 2, POINTS
    for _ in range(1 + REFINEMENTS):
        steps = torch.linspace(-half, half, points).to(squares)
        exponents = (centre + steps[:, None]).clamp(LOWEST, HIGHEST)  # (G, C)
        values = _evidence(10**exponents, squares, inside, outside, n)
        best = values.argmax(0, keepdim=True)
        centre = exponents.gather(0, best)[0]
        half, points = 2 * half / (points - 1), 9
    return values.gather(0, best)[0]


def _evidence(lam: Tensor, squares: Tensor, inside: Tensor, outside: Tensor, n: int) -> Tensor:
    """(G, C) log p(y | λ) for λ (G, C)."""
    shrink = lam[:, None] / (lam[:, None] + squares[:, None])  # (G, k, C)
    rest = ((shrink * inside).sum(1) + outside).clamp_min(1e-300)
    return 0.5 * n * (math.log(n) - 1 - math.log(2 * math.pi) - rest.log()) + 0.5 * shrink.log().sum(1)
