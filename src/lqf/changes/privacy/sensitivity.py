"""How far one image can move the optimum of a ridge regression: the bound that the noise of a private model stands on.

    w(D) = argmin ½ Σ_i ‖r_i − φ_i w‖² + ½ μ‖w‖²,       ‖φ_i‖ ≤ R,  ‖r_i‖ ≤ T,  n images.

Without image i the optimum is w₋, its residual there e = r_i − φ_i w₋, and with H₋ the Hessian without it

    w − w₋ = H₋⁻¹φᵀ (I + φ H₋⁻¹ φᵀ)⁻¹ e.

H₋ ≥ μ (strong convexity), so the singular values of φ H₋^(−1/2) are at most ρ = R/√μ, and

    ‖w − w₋‖ ≤ max_{s ≤ ρ} s/(1 + s²) / √μ · (T + R‖w₋‖),
    ‖w₋‖ = ‖Φᵀ(ΦΦᵀ + μ)⁻¹ r‖ ≤ max_{s ≤ R√(n−1)} s/(s² + μ) · T√(n−1).

Neither bound reads the data. Replacing an image is leaving one out and adding another: twice that. A computed w with
‖∇‖/μ ≤ τ is at most τ from the optimum, before and after: 2τ more.
"""

from __future__ import annotations

import math

RESIDUAL = 1e-6
"""τ, relative to the sensitivity: what a solve in float64 stays far below."""


def sensitivity(n: int, mu: float, *, row: float = 1.0, target: float) -> float:
    """Δ of replacing one of n images: the largest ‖w(D) − w(D')‖, for exact optima.

    Args:
        n: images.
        mu: μ, in the unit of the sum over the images.
        row: R, the largest norm of the images' rows.
        target: T, likewise of what they are fitted to.
    """
    root = math.sqrt(mu)
    farthest = target * math.sqrt(n - 1) * _peak(row * math.sqrt(n - 1), root) / root
    return 2 * _peak(row, root) / root * (target + row * farthest)


def _peak(most: float, root: float) -> float:
    """max of s/(1 + s²) over s ≤ most/root, which is ½ from s = 1 on; times 1/root it is that of s/(s² + root²)."""
    s = min(1.0, most / root)
    return s / (1 + s * s)
