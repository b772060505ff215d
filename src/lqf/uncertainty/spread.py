"""How far the outputs of an image could have been elsewhere: Cov f(x) = σ² J_x H⁻¹ J_xᵀ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from lqf.analysis import Analysis, Queries
from lqf.utils.exactness import Answer
from lqf.utils.frames import Tabular
from lqf.utils.text import counted


@dataclass(frozen=True, kw_only=True, repr=False)
class Spread(Tabular, Answer):
    """Standard deviations (Q, C) of outputs, as their value; an array wherever one is needed.

    Attributes:
        covariance: (Q, C, C) of the outputs of every image.
        noise: σ², the variance of one target around the model.
        ids: (Q,) of the images.
    """

    covariance: Tensor
    noise: float
    ids: tuple[str, ...]

    def _about(self) -> str:
        return f"{counted(len(self), 'image')}, {float(self.value.mean()):.3g} on average"

    def __len__(self) -> int:
        return len(self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """(N,) for two classes, else (N, n_classes): the shape of `decision_function`."""
        std = self.value.numpy()
        std = std[:, 0] if std.shape[1] == 1 else std
        return np.array(std, dtype=dtype, copy=True if copy is None else copy)

    def rows(self) -> list[dict[str, Any]]:
        """One for every output of every image; with two classes there is one output, that of the second."""
        return [
            {"id": name, "output": k, "std": std}
            for name, own in zip(self.ids, self.value.tolist(), strict=True)
            for k, std in enumerate(own)
        ]

    def to_dict(self) -> dict[str, Any]:
        """What holds for all of them, for JSON."""
        return {"noise": self.noise, "level": self.level, "note": self.note}


def spread(analysis: Analysis, queries: Queries) -> Spread:
    """Of opened images."""
    found = analysis.method.covariance(queries, analysis.units)
    std = found.value.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()
    noise = analysis.method.noise(analysis.units)
    return Spread(std, found.level, found.note, covariance=found.value, noise=noise, ids=queries.ids)
