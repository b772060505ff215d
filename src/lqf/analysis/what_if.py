"""Predictions of a model that was fitted on other data: results of `Analysis.what_if`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lqf.evaluation.calibration import probabilities
from lqf.linear.targets import decide
from lqf.utils.exactness import Answer


@dataclass(frozen=True, kw_only=True)
class WhatIf(Answer):
    """The queries' outputs (Q, C) after a change of the training data.

    Attributes:
        before: (Q, C) the outputs of the model as it was fitted.
        beta: inverse temperature of its probabilities.
        query_ids: (Q,).
        classes: names.
    """

    before: Tensor
    beta: float
    query_ids: tuple[str, ...]
    classes: tuple[str, ...]

    @property
    def outputs(self) -> Tensor:
        """(Q, C) after the change."""
        return self.value

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
