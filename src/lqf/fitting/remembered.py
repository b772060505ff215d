"""What a fit by iteration knew beyond its solution; all of it can be computed again, by passes over the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from lqf.kernels.ridge import KernelRidge


@dataclass(frozen=True, eq=False)
class Remembered:
    """Of one training problem and its solution.

    Attributes:
        residuals: (n, C) t − f of all rows, each through its own head.
        averaged: the factorised kernel averaged over the outputs, of all rows.
        curvature: K-FAC of the body, as `lqf.curvature.stored` names its tensors; empty where it is not known.
        ratio: as the solution had it (`lqf.solvers.energy`).
        strengths: μ'/μ of kernels that all outputs share, by name (`lqf.fitting.leverage_strength`).
        curvature_of: rows that the curvature was made of, where they are not all.
        gap: (D,) roughly what the solution left of the body's normal equations.
    """

    residuals: Tensor | None = None
    averaged: KernelRidge | None = None
    curvature: Mapping[str, Tensor] = field(default_factory=dict)
    ratio: float | None = None
    strengths: Mapping[str, float] = field(default_factory=dict)
    curvature_of: int | None = None
    gap: Tensor | None = None


NOTHING = Remembered()
