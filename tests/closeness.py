"""How far a result is from what is expected, in units of the expected one's size: zeros are 1 away from anything."""

from __future__ import annotations

import torch
from torch import Tensor

from lqf.linear.linearize import Linearization

ROUNDING = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 5e-3}
"""What products of the small networks may be away from exact ones in each type: an error of a tenth is none of it."""


def relative(found: Tensor, expected: Tensor) -> float:
    """‖found − expected‖ / ‖expected‖."""
    return float((found - expected).norm() / expected.norm())


def assert_same_products(fast: Linearization, exact: Linearization, x: Tensor, v: Tensor, error: float = 1e-10) -> None:
    """J·v and Jᵀ·J·v agree in every entry."""
    dz = exact.jvp(x, v)[1]
    for found, expected in ((fast.jvp(x, v)[1], dz), (fast.vjp(x, dz), exact.vjp(x, dz))):
        torch.testing.assert_close(found, expected, rtol=error, atol=error * float(expected.abs().max()))
