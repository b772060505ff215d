"""The small convex programme of a constrained problem, in the space of its constraints.

With the optimum δ* of the unconstrained problem and values v = Aδ* + const, the constrained one is

    min ½ (δ − δ*)ᵀ H (δ − δ*)   subject to   l ≤ v + A(δ − δ*) ≤ u,          δ = δ* − H⁻¹Aᵀλ,

and with the Schur complement S = A H⁻¹ Aᵀ = LLᵀ it is the projection of zero on a polyhedron, in t = −Lᵀλ:

    min ½ ‖t‖²   subject to   l − v ≤ L t ≤ u − v.

Equalities alone are one linear system; with inequalities, `daqp` finds which of them are active.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lqf.errors import LQFError

RANK = 1e-11
"""Share of the largest eigenvalue of S below which a direction counts as one that no weights can change."""
SLACK = 1e-9
"""Width of an equality, in the unit of its row: constraints that repeat each other are no conflict."""
INSTALL = "inequalities need the solver daqp: run `pip install 'lqf-torch[constraints]'`"


class Infeasible(Exception):
    """No weights satisfy all constraints; ``rows``: some that cannot hold together, of which none can be left out."""

    def __init__(self, rows: list[int]):
        super().__init__("the constraints contradict each other")
        self.rows = rows


@dataclass(frozen=True)
class SmallProgram:
    """Constraints l ≤ v + Sμ ≤ u.

    Attributes:
        schur: (m, m) S.
        values: (m,) v.
        lower, upper: (m,) l, u; infinite where there is none.
        rank: as `RANK`.
    """

    schur: Tensor
    values: Tensor
    lower: Tensor
    upper: Tensor
    rank: float = RANK

    def multipliers(self) -> Tensor:
        """(m,) λ: positive where the upper bound is active, negative where the lower one is."""
        scale = self.schur.diagonal().clamp_min(1e-300).sqrt()
        factor = self._factor(scale)
        low, high = ((bound - self.values) / scale for bound in (self.lower, self.upper))
        active = _active(factor, low, high)
        if active is None:
            raise Infeasible(_conflict(factor, low, high))
        return self._on(active)

    def _factor(self, scale: Tensor) -> Tensor:
        """L (m, r) of S with its diagonal scaled to one."""
        lam, q = torch.linalg.eigh(self.schur / scale[:, None] / scale)
        kept = lam > self.rank * lam[-1].clamp_min(1e-300)
        return q[:, kept] * lam[kept].sqrt()

    def _on(self, active: Tensor) -> Tensor:
        """The multipliers when some constraints, with the signs ``active`` (m,), hold as equalities."""
        out, on = torch.zeros_like(self.values), active.nonzero()[:, 0]
        if len(on):
            bound = torch.where(active > 0, self.upper, self.lower)[on]
            block, gap = self.schur[on][:, on], self.values[on] - bound
            scale = block.diagonal().clamp_min(1e-300).sqrt()
            lam, q = torch.linalg.eigh(block / scale[:, None] / scale)
            kept = lam > self.rank * lam[-1]
            out[on] = (q[:, kept] @ ((q[:, kept].T @ (gap / scale)) / lam[kept])) / scale
        return out


def _active(factor: Tensor, low: Tensor, high: Tensor) -> Tensor | None:
    """(m,) ±1 where the upper or lower bound holds as an equality, else 0; None: nothing satisfies all."""
    equal = high <= low
    if bool(equal.all()):
        return torch.ones_like(low) if _consistent(factor, low) else None
    found = _solved(factor, low, high, equal)
    if found is None:
        return None
    return torch.where(equal, torch.ones_like(low), found.sign() * (found.abs() > 1e-12 * found.abs().max()))


def _consistent(factor: Tensor, wanted: Tensor) -> bool:
    """Whether L t = wanted has a solution."""
    t = torch.linalg.lstsq(factor, wanted[:, None], driver="gelsd").solution
    left = float((factor @ t - wanted[:, None]).abs().max())
    return left <= 1e-7 * max(1.0, float(wanted.abs().max()))


def _solved(factor: Tensor, low: Tensor, high: Tensor, equal: Tensor) -> Tensor | None:
    """(m,) multipliers of the projection of zero; None where nothing satisfies all."""
    wide = SLACK * (1 + torch.where(equal, low.abs(), 0))
    low, high = torch.where(equal, low - wide, low), torch.where(equal, high + wide, high)
    m, r = factor.shape
    arrays = [t.numpy().astype(np.float64) for t in (high.clamp_max(1e30), low.clamp_min(-1e30))]
    one = np.ascontiguousarray(factor.numpy()) if r else np.zeros((m, 1))
    r = max(r, 1)
    sense = np.zeros(m, dtype=np.int32)
    _, _, flag, info = _daqp().solve(np.eye(r), np.zeros(r), one, *arrays, sense, primal_tol=1e-10, dual_tol=1e-12)
    if flag == -1:
        return None
    if flag < 1:
        raise LQFError(
            f"the solver of the {m} constraints gave up (daqp's exit flag {flag}); give fewer, or wider, constraints"
        )
    return torch.from_numpy(np.array(info["lam"], dtype=np.float64))


def _conflict(factor: Tensor, low: Tensor, high: Tensor) -> list[int]:
    """Numbers of constraints that contradict each other, without any of which the others could hold."""
    rows: list[int] = list(range(len(low)))
    for i in range(len(low)):
        fewer = [j for j in rows if j != i]
        if fewer and _active(factor[fewer], low[fewer], high[fewer]) is None:
            rows = fewer
    return rows


def _daqp() -> Any:
    try:
        import daqp
    except ImportError:
        raise LQFError(INSTALL) from None
    return daqp
