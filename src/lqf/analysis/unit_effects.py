"""What leaving out training samples does to something that is said of every query: the base of such answers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lqf.analysis.units import Units
from lqf.utils.exactness import Answer
from lqf.utils.text import counted


@dataclass(frozen=True, kw_only=True, repr=False)
class UnitEffects(Answer):
    """Signed effects of leaving out every unit, (U, Q, …), as its value.

    Attributes:
        outputs: (Q, C) f(x), from the problem as it was fitted.
        units: the sets of training samples that are left out.
        query_ids: (Q,).
        labels: (Q,) of the queries, −1 where unknown.
        classes: names.
        beta: inverse temperature of the probabilities.
    """

    outputs: Tensor
    units: Units
    query_ids: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    beta: float

    def _about(self) -> str:
        return f"{self.units.counted} on {counted(len(self.query_ids), 'image')}"
