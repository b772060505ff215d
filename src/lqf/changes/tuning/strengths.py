"""Other strengths of the same problem: the head's, and the body's, whose stages keep their ratios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lqf.linear.ridge import Ridge

GRID = tuple(10 ** (k / 2) for k in range(-4, 5))
"""Factors at which a path looks, of each of both strengths: half powers of ten, a hundred times less to more."""
FEW = (0.1, 1.0, 10.0)
"""Likewise where each pair takes a solve by iteration."""


@dataclass(frozen=True)
class Tried:
    """A model at one pair of strengths, judged by images that it has not seen.

    Attributes:
        weight_decay: λ of the head, per sample.
        body_weight_decay: λ of the body; None for a head alone.
        error: weighted share of wrong predictions.
        loss: cross-entropy at the best temperature.
        passes: over the training data that were made for it.
        slope: derivatives of the loss by the logarithms of both strengths; None where they were not asked for.
    """

    weight_decay: float
    body_weight_decay: float | None
    error: float
    loss: float
    passes: int = 0
    slope: tuple[float, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {name: value for name, value in vars(self).items() if name != "slope" or value is not None}


def scaled(base: Ridge, head: float, body: float) -> Ridge:
    """With these factors on the strengths of head and body; a stage's strength is the body's times a constant."""
    return Ridge(base.head * head, base.body * body, tuple((name, mu * body) for name, mu in base.stages))
