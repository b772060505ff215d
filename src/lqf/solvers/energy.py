"""How far an iterate of conjugate gradients is from the solution, by what its steps have gained.

Every step lowers the energy ½ xᵀAx − bᵀx by half of (r·p)²/(p·Ap), and all steps from j on lower it by half of

    ‖x_j − x*‖²_A = Σ_{i ≥ j} (r_i·p_i)² / (p_i·Ap_i)        (Hestenes and Stiefel),

so the gains so far say how far the earlier iterates were. Relative to rᵀB⁻¹r, which is the same quantity where the
preconditioner B is A itself, that distance changes slowly: its largest ratio so far turns rᵀB⁻¹r of a residual that was
measured on the data into an estimate for the iterate that it belongs to.

Gains are of directions that have been searched. Where the preconditioner is wrong about the others (small ridge
strengths, an ill-conditioned network) the estimate is too small, by twenty times in the worst of the problems tried. No
error is larger than what the ridge allows, though: with A = JᵀQJ + M, M the strengths, whatever J,

    ‖x − x*‖²_A = rᵀA⁻¹r ≤ rᵀM⁻¹r.

Where strengths are chosen by leave-one-out the bound is often the smaller of the two, and decides. Where conditioning
is poor it is far too large; there an estimate counts as a tenth of it at least (`careful`) while there are passes to
spare. The same problems then ended at twice their tolerance at worst, after 3 % more steps in the median.

The energy norm bounds the change of the training outputs, ‖f(x) − f(x*)‖_S ≤ ‖x − x*‖_A.
"""

from __future__ import annotations

import torch
from torch import Tensor

SHARE = 0.1
"""Of the bound on the error, the least that is believed."""


class EnergyError:
    """Estimates ‖x − x*‖_A, relative to ``unit`` (k,), for k right-hand sides, from the step number ``least`` on.

    Without a preconditioner the first steps say nothing about the directions that are still to come. ``prior`` is a
    ratio that is known before the first step; the estimate is then never less than it makes it.
    """

    def __init__(self, unit: Tensor, least: int = 1, prior: float | None = None):
        self.unit, self.least, self.prior = torch.where(unit > 0, unit, 1.0), least, prior
        self._rz: list[Tensor] = []
        self._gain: list[Tensor] = []

    def step(self, on: Tensor, rz: Tensor, gain: Tensor) -> None:
        """Record a step of the right-hand sides ``on``: rᵀB⁻¹r before it, and (r·p)²/(p·Ap)."""
        every_rz, every_gain = torch.full_like(self.unit, torch.inf), torch.zeros_like(self.unit)
        every_rz[on], every_gain[on] = rz, gain
        self._rz.append(every_rz)
        self._gain.append(every_gain)

    def relative(self, on: Tensor, rz: Tensor, most: Tensor | None = None) -> Tensor:
        """Of the right-hand sides ``on``, from rᵀB⁻¹r of their residuals now; before the first steps only what ``most``
        says, or infinite, except where nothing is left.

        Args:
            on: their numbers (m,).
            rz: (m,).
            most: (m,) what ‖x − x*‖²_A cannot exceed; None: not known.
        """
        estimate = self._estimate(on, rz)
        if most is None:
            return estimate
        return torch.minimum(estimate, self.bound(on, most).to(estimate))

    def careful(self, on: Tensor, rz: Tensor, most: Tensor | None = None) -> Tensor:
        """The same, but at least a share of what it can be at most."""
        estimate = self.relative(on, rz, most)
        return estimate if most is None else torch.maximum(estimate, SHARE * self.bound(on, most).to(estimate))

    def bound(self, on: Tensor, most: Tensor) -> Tensor:
        """Of the right-hand sides ``on``, from what ‖x − x*‖²_A cannot exceed."""
        return most.sqrt() / self.unit[on]

    def _estimate(self, on: Tensor, rz: Tensor) -> Tensor:
        if len(self._rz) < self.least and self.prior is None:
            return torch.where(rz > 0, torch.inf, torch.zeros_like(rz))
        ratio = self.ratio[on].to(rz)
        known = torch.where(ratio > 0, (ratio * rz).clamp_min(0).sqrt() / self.unit[on], torch.inf)
        return torch.where(rz > 0, known, 0.0)

    @property
    def ratio(self) -> Tensor:
        """(k,) the largest ‖x_j − x*‖²_A / r_jᵀB⁻¹r_j so far; 0 where nothing is known."""
        ratio = torch.full_like(self.unit, self.prior or 0.0)
        if not self._rz:
            return ratio
        gained = torch.stack(self._gain).flip(0).cumsum(0).flip(0)  # by all steps from each on
        return torch.maximum(ratio, (gained / torch.stack(self._rz)).amax(0).to(ratio))
