"""Judging strengths by the outputs of one model, or of a stack, on images that none of its members has seen.

All strengths of heads are multiplied by one factor and all of bodies by another; outputs add up, and so do slopes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lqf.changes.tuning.strengths import Tried, scaled
from lqf.evaluation.best_loss import best_loss
from lqf.linear.ridge import Ridge
from lqf.linear.targets import error_rate


class AnyStrength(Protocol):
    """A model at any strengths."""

    @property
    def passes(self) -> int:
        """Over the training data, so far."""
        ...

    def outputs(self, ridge: Ridge) -> Tensor:
        """(m, C) of the images that judge."""
        ...

    def slope(self, ridge: Ridge, u: Tensor) -> tuple[float, float]:
        """Of a loss with derivatives u (m, C) by the outputs, along log μ_head and log μ_body."""
        ...


@dataclass(frozen=True)
class Term:
    """A member of a stack, or a model alone.

    Attributes:
        weight: of its outputs.
        base: the strengths that it has.
        model: at any strengths.
        samples: (m,) which of the images it judges.
    """

    weight: float
    base: Ridge
    model: AnyStrength
    samples: Tensor


@dataclass(frozen=True)
class StrengthJudge:
    """Compares pairs of factors.

    Attributes:
        terms: what changes with them.
        rest: (N, C) outputs of members that have no strengths.
        labels: (N,).
        weights: (N,) where strengths are compared.
        counted: (N,) where an error is reported.
        shown: the strengths that are shown for all, at factors of one.
        total_weight: Σs.
        alone: whether there are heads only.
    """

    terms: tuple[Term, ...]
    rest: Tensor
    labels: Tensor
    weights: Tensor
    counted: Tensor
    shown: Ridge
    total_weight: float
    alone: bool

    def at(self, head: float, body: float, *, slope: bool = False) -> Tried:
        """One pair of factors; the body's is the head's where there are heads only."""
        before = self._passes
        outputs, known = self._outputs(head, body)
        found = best_loss(outputs, self.labels, torch.where(known, self.weights, 0.0))
        ridge = scaled(self.shown, head, body)
        return Tried(
            ridge.head / self.total_weight,
            None if self.alone else ridge.body / self.total_weight,
            error_rate(outputs, self.labels, torch.where(known, self.counted, 0.0)),
            found.value,
            self._passes - before,
            self._slope(head, body, found.slope) if slope else None,
        )

    @property
    def _passes(self) -> int:
        return sum(term.model.passes for term in self.terms)

    def _outputs(self, head: float, body: float) -> tuple[Tensor, Tensor]:
        """(N, C), zero where a member says nothing, and (N,) where all say something."""
        out = self.rest.clone()
        for term in self.terms:
            own = torch.full_like(out, torch.nan)
            own[term.samples] = term.model.outputs(scaled(term.base, head, body)).to(out)
            out += term.weight * own
        known = ~out.isnan().any(1)
        return out.masked_fill(~known[:, None], 0.0), known

    def _slope(self, head: float, body: float, u: Tensor) -> tuple[float, ...]:
        parts = [t.model.slope(scaled(t.base, head, body), t.weight * u[t.samples]) for t in self.terms]
        along = tuple(sum(p[k] for p in parts) for k in (0, 1))
        return along[:1] if self.alone else along
