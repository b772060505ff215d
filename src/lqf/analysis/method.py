"""What a method of solution answers; `Analysis` asks it and hands its labels on."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from lqf.analysis.counterfactual import Change
from lqf.analysis.queries import Queries
from lqf.analysis.unexplained import Unexplained
from lqf.analysis.units import Units
from lqf.utils.exactness import Answer, Level

FIXED_POINT = "the linearisation point held fixed"
"""What every answer assumes: the heads around which the body was linearised stay as they were."""
FIXED_NETWORK = "by a closed-form head on the features of the fine-tuned network, which is held fixed"
"""What answers about a network that was trained assume."""


class Method(Protocol):
    """Exact, solved or estimated answers about one training problem; numbers are float64, on the CPU."""

    level: Level

    @property
    def note(self) -> str:
        """What stands behind the level."""
        ...

    def outputs(self, queries: Queries) -> Tensor:
        """f (Q, C), of the solution that effects are differences from."""
        ...

    def predictions(self, queries: Queries) -> Tensor:
        """f (Q, C), as the model gives it: no pass over the training images."""
        ...

    def effects(self, queries: Queries, units: Units, chosen: Tensor | None) -> Answer:
        """(U, Q, C) f₋S − f of all units, or (k, Q, C) of those ``chosen``."""
        ...

    def effects_on_sums(self, queries: Queries, weights: Tensor, units: Units, *, quick: bool = False) -> Answer:
        """(U, Q) w_q·(f₋S − f) of all units, of one sum of outputs of every image with weights (Q, C).

        ``quick``: estimated, where that takes fewer passes.
        """
        ...

    def seconds(self, images: int, *, quick: bool) -> float:
        """That effects on one sum of outputs of so many images will take, about, as far as the training rows count."""
        ...

    def out_of_sample(self, units: Units, samples: Tensor | None) -> Answer:
        """(N, C) outputs of all training samples without their unit, or (k, C) of some."""
        ...

    def information(self, queries: Queries | None, units: Units) -> Answer:
        """(U,) F-SI; None: on the training samples."""
        ...

    def leaving(self, queries: Queries | None, units: Units, *, most: bool, steps: int) -> Tensor:
        """(U,) the order in which units leave as information is measured again; None: on the training samples."""
        ...

    def prepare(self, queries: Queries) -> None:
        """Make what all answers about these images share."""
        ...

    def what_if(self, queries: Queries, change: Change) -> Answer:
        """f (Q, C) after a change of the training data."""
        ...

    def changed_out_of_sample(self, units: Units, change: Change) -> Answer:
        """(N, C) outputs of all training samples without their unit, after a change of the training data."""
        ...

    def refitted(self, queries: Queries, keep: Tensor) -> Tensor:
        """f (Q, C) after fitting only the samples ``keep``."""
        ...

    def covariance(self, queries: Queries, units: Units) -> Answer:
        """(Q, C, C) σ² J_x H⁻¹ J_xᵀ of the outputs of every image; ``units``: who is left out for σ²."""
        ...

    def noise(self, units: Units) -> float:
        """σ² of one target, from what is said about training samples without their unit."""
        ...

    def unexplained(self, queries: Queries, units: Units) -> Unexplained:
        """Of the images and of the training samples, each of these without its unit."""
        ...
