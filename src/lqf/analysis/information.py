"""How much every training sample informs the model: functional sample information."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.analysis.units import Units
from lqf.utils.exactness import Answer
from lqf.utils.text import shortened


@dataclass(frozen=True, kw_only=True, repr=False)
class Information(Answer):
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
