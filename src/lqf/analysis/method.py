"""What a method of solution answers; `Analysis` asks it and labels the answers."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from lqf.analysis.change import Change
from lqf.analysis.queries import Queries
from lqf.analysis.units import Units
from lqf.solution import Level

FIXED_POINT = "the linearisation point held fixed"
"""What every answer assumes: the heads around which the body was linearised stay as they were."""


class Method(Protocol):
    """Exact, solved or estimated answers about one rebuilt problem; tensors are float64 on the CPU."""

    level: Level
    note: str

    def outputs(self, queries: Queries) -> Tensor:
        """f (Q, C)."""
        ...

    def effects(self, queries: Queries, units: Units, chosen: Tensor | None) -> Tensor:
        """(U, Q, C) f₋S − f of all units, or (k, Q, C) of those ``chosen``."""
        ...

    def out_of_sample(self, units: Units, samples: Tensor | None) -> Tensor:
        """(N, C) outputs of all training samples without their unit, or (k, C) of some."""
        ...

    def information(self, queries: Queries | None, units: Units) -> tuple[Tensor, Tensor | None]:
        """(U,) F-SI and its standard error; None: on the training samples."""
        ...

    def what_if(self, queries: Queries, change: Change) -> Tensor:
        """f (Q, C) after a change of the training data."""
        ...

    def refitted(self, queries: Queries, keep: Tensor) -> Tensor:
        """f (Q, C) after fitting only the samples ``keep``."""
        ...
