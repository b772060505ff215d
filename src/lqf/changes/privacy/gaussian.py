"""The Gaussian mechanism, calibrated exactly (Balle & Wang, 2018: Improving the Gaussian mechanism), and its noise.

Adding N(0, σ²I) to a value that one record moves by at most Δ is (ε, δ)-private if and only if

    Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ) ≤ δ.
"""

from __future__ import annotations

import math
import os

import numpy as np
import torch
from torch import Tensor

from lqf.errors import LQFError


def loss_of_privacy(epsilon: float, sigma: float) -> float:
    """The smallest δ for a sensitivity of 1."""
    a, b = torch.tensor([0.5 / sigma - epsilon * sigma, -0.5 / sigma - epsilon * sigma], dtype=torch.float64)
    return float(torch.special.ndtr(a) - (epsilon + torch.special.log_ndtr(b)).exp())


def noise_multiplier(epsilon: float, delta: float) -> float:
    """The smallest σ for a sensitivity of 1, by bisection; rounded up."""
    check_budget(epsilon, delta)
    low, high = -30.0, 30.0  # of log σ
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if loss_of_privacy(epsilon, math.exp(middle)) > delta else (low, middle)
    return math.exp(high) * (1 + 1e-12)


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse what is no budget."""
    if not 0 < epsilon <= 100:
        raise LQFError(f"epsilon is {epsilon!r}; give a number above 0 and at most 100, such as 4")
    if not 0 < delta <= 0.5:
        raise LQFError(f"delta is {delta!r}; give a number above 0 and far below 1 over the images, such as 1e-5")


def normal(size: int, seed: int | None = None) -> Tensor:
    """(size,) standard normal numbers in float64, from the operating system's secure source.

    ``seed``: for experiments alone: who knows it can take the noise off again.
    """
    if seed is not None:
        return torch.from_numpy(np.random.default_rng(seed).standard_normal(size))
    bits = np.frombuffer(os.urandom(8 * size), dtype=np.uint64) >> np.uint64(11)
    return torch.special.ndtri(torch.from_numpy((bits.astype(np.float64) + 0.5) / 2.0**53))
