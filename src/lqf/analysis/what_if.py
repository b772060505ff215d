"""Predictions of a model that was fitted on other data: results of `Analysis.what_if`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lqf.evaluation.calibration import probabilities
from lqf.linear.targets import decide
from lqf.utils.exactness import Level


@dataclass(frozen=True)
class WhatIf:
    """The queries' outputs before and after a change of the training data.

    Attributes:
        before, outputs: (Q, C).
        beta: inverse temperature of the probabilities (of the model as it was fitted).
        query_ids: (Q,).
        classes: names.
        level: how exact the new outputs are.
        note: what stands behind the level.
    """

    before: Tensor
    outputs: Tensor
    beta: float
    query_ids: tuple[str, ...]
    classes: tuple[str, ...]
    level: Level
    note: str

    @property
    def predicted(self) -> list[str]:
        """(Q,) names of the predicted classes after the change."""
        return [self.classes[k] for k in decide(self.outputs).tolist()]

    @property
    def probabilities(self) -> Tensor:
        """(Q, n_classes) after the change."""
        return probabilities(self.outputs, self.beta)

    @property
    def changed(self) -> Tensor:
        """(Q,) whether the decision is another one."""
        return decide(self.outputs) != decide(self.before)
