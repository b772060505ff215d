"""How much every training sample informs the model: functional sample information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lqf.analysis.units import Units
from lqf.utils.exactness import Answer
from lqf.utils.frames import Tabular
from lqf.utils.text import shortened


@dataclass(frozen=True, kw_only=True, repr=False)
class Information(Tabular, Answer):
    """F-SI(S) = mean over validation images x of ‖f(x) − f₋S(x)‖², (U,) of every unit.

    Attributes:
        units: the sets of training samples.
    """

    units: Units

    def _about(self) -> str:
        order = self.ranking().tolist()
        ends = [f"{shortened(self.units.names[i], 20)} {self.values[i]:.2g}" for i in (order[0], order[-1])]
        return f"{self.units.counted}, from {' to '.join(ends)}"

    @property
    def values(self) -> Tensor:
        """(U,)."""
        return self.value

    @property
    def standard_error(self) -> Tensor | None:
        """(U,) where the values are sketched by random probes; None where they are not."""
        return self.uncertainty

    def ranking(self) -> Tensor:
        """(U,) numbers of the units, the most informative first."""
        return torch.argsort(self.values, descending=True, stable=True)

    def samples(self) -> Tensor:
        """(N,) the value of every sample's unit."""
        return self.values[self.units.member]

    def rows(self) -> list[dict[str, Any]]:
        """One for every unit, the most informative first."""
        error = self.standard_error
        return [
            {
                "unit": self.units.names[i],
                "information": float(self.values[i]),
                "standard_error": None if error is None else float(error[i]),
            }
            for i in self.ranking().tolist()
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {"level": self.level, "note": self.note, "information": self.rows()}
