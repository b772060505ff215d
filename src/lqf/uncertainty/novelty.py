"""Whether an image is unlike all training images, by how much of it they leave open:

    V(x) = tr J_x H⁻¹ J_xᵀ / tr J_x M⁻¹ J_xᵀ,   V_i likewise without the unit S of sample i,   w_i = 1/|S|,
    p(x) = (1 + Σ_i w_i [V_i ≥ V(x)]) / (1 + U).

V(x) is smaller than without a unit, so that p is not smaller than jackknife+'s: of images that come as the training
images came, 2a at most have p ≤ a, and a in practice. Without the denominator, images with small features, such as
plain ones, would count as known (`benchmarks/results/novelty.json`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lqf.analysis import Analysis, Queries
from lqf.uncertainty.conformal import p_values, voices
from lqf.utils.exactness import Answer
from lqf.utils.frames import Tabular
from lqf.utils.text import counted


@dataclass(frozen=True, kw_only=True, repr=False)
class Novelty(Tabular, Answer):
    """p-values (Q,) of images, as their value: small where few training images are so far from the others.

    Attributes:
        unexplained: (Q,) V(x), from 0 to 1.
        ids: (Q,) of the images.
    """

    unexplained: Tensor
    ids: tuple[str, ...]

    def _about(self) -> str:
        return f"{counted(len(self), 'image')}, {int((self.value <= 0.05).sum())} of them novel at 5%"

    def __len__(self) -> int:
        return len(self.value)

    @property
    def p_values(self) -> np.ndarray:
        """(Q,)."""
        return self.value.numpy()

    def rows(self) -> list[dict[str, Any]]:
        """One for every image."""
        values = zip(self.ids, self.value.tolist(), self.unexplained.tolist(), strict=True)
        return [{"id": name, "p_value": p, "unexplained": v} for name, p, v in values]

    def to_dict(self) -> dict[str, Any]:
        """What holds for all of them, for JSON."""
        return {"novel_at_5_percent": int((self.value <= 0.05).sum()), "level": self.level, "note": self.note}


def novelty(analysis: Analysis, queries: Queries) -> Novelty:
    """Of opened images."""
    units = analysis.units
    found = analysis.method.unexplained(queries, units)
    known = torch.ones(len(units.ids), dtype=torch.bool)
    weights = voices(units, analysis.labels, 1, known, by_class=False)
    p = p_values(found.training, found.asked[None, :, None], units.member, weights)[:, 0]
    return Novelty(p, found.level, found.note, unexplained=found.asked, ids=queries.ids)
