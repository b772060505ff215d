"""Whether an image is unlike all training images: its variance beside theirs, each without itself.

    V(x) = tr J_x H⁻¹ J_xᵀ,     V_i = tr J_i H₋S⁻¹ J_iᵀ,     p(x) = (1 + Σ_i w_i [V_i ≥ V(x)]) / (1 + U),

with S the unit of sample i and w_i = 1/|S|. V(x) is smaller than without a unit, so that p is not smaller than
jackknife+'s: of images that come as the training images came, 2a at most have p ≤ a, and a in practice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lqf.analysis import Analysis, Queries
from lqf.uncertainty.conformal import p_values, voices
from lqf.utils.exactness import Answer
from lqf.utils.text import counted


@dataclass(frozen=True, kw_only=True, repr=False)
class Novelty(Answer):
    """p-values (Q,) of images, as their value: small where few training images are so far from the others.

    Attributes:
        ratio: (Q,) V(x) over the median of the training images; 1 is usual.
        ids: (Q,) of the images.
    """

    ratio: Tensor
    ids: tuple[str, ...]

    def _about(self) -> str:
        return f"{counted(len(self), 'image')}, {int((self.value <= 0.05).sum())} of them novel at 5%"

    def __len__(self) -> int:
        return len(self.value)

    @property
    def p_values(self) -> np.ndarray:
        """(Q,)."""
        return self.value.numpy()


def novelty(analysis: Analysis, queries: Queries) -> Novelty:
    """Of opened images."""
    units = analysis.units
    found = analysis.method.variances(queries, units)
    known = torch.ones(len(units.ids), dtype=torch.bool)
    weights = voices(units, analysis.labels, 1, known, by_class=False)
    p = p_values(found.training, found.asked[None, :, None], units.member, weights)[:, 0]
    ratio = found.asked / found.training.median().clamp_min(1e-300)
    return Novelty(p, found.level, found.note, ratio=ratio, ids=queries.ids)
