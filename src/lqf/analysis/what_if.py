"""Predictions of a model that was fitted on other data: results of `Analysis.what_if`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lqf.data import Samples
from lqf.evaluation.calibration import probabilities
from lqf.linear.targets import decide
from lqf.utils.exactness import Answer
from lqf.utils.frames import Tabular
from lqf.utils.notebook import Shown
from lqf.utils.text import counted


@dataclass(frozen=True, kw_only=True, repr=False)
class WhatIf(Shown, Tabular, Answer):
    """The queries' outputs (Q, C) after a change of the training data.

    Attributes:
        before: (Q, C) the outputs of the model as it was fitted.
        beta: inverse temperature of its probabilities.
        query_ids: (Q,).
        classes: names.
        samples: of the queries, for their pictures.
    """

    before: Tensor
    beta: float
    query_ids: tuple[str, ...]
    classes: tuple[str, ...]
    samples: Samples | None = None

    def _about(self) -> str:
        n = int(self.changed.sum())
        return f"{counted(len(self.query_ids), 'image')}, {n or 'none'} of them with another prediction"

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

    def rows(self) -> list[dict[str, Any]]:
        """One for every query: its prediction before and after, with the probability of the latter."""
        before, p = decide(self.before).tolist(), self.probabilities.amax(1).tolist()
        return [
            {"id": name, "before": self.classes[k], "predicted": predicted, "probability": own}
            for name, k, predicted, own in zip(self.query_ids, before, self.predicted, p, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        changed = int(self.changed.sum())
        return {"level": self.level, "note": self.note, "changed": changed, "predictions": self.rows()}
