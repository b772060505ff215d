"""Leave-one-out: what the model would say about each training sample had it not seen it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lqf.evaluation.balance import balanced, effective_number, judging_weights
from lqf.evaluation.calibration import calibrate, probabilities
from lqf.evaluation.metrics import standard_error
from lqf.linear.targets import decide, error_rate
from lqf.utils.exactness import Answer
from lqf.utils.text import counted, percent

BY_REFITS = "by refits without"
"""The beginning of the note where models without the samples were solved for."""


@dataclass(frozen=True, kw_only=True, repr=False)
class LeaveOneOut(Answer):
    """Out-of-sample outputs of the training samples.

    Its value are the outputs (N, C), averaged over an image's views; NaN where they are not known (see `known`). Under
    a label-dependent linearisation point the note has its measured bias.

    Attributes:
        labels: (N,).
        weights: (N,) sample weights, those of the classes included.
        choose_by: what counts alike where the temperature is chosen: "images", by their weights, or "classes".
    """

    labels: Tensor
    weights: Tensor
    choose_by: str = "images"

    def _about(self) -> str:
        known, n = int(self.known.sum()), len(self.labels)
        part = f", known for {known:,}" if known < n else ""
        return f"{counted(n, 'sample')}{part}, error {percent(self.error) if known else 'not known'}"

    @property
    def outputs(self) -> Tensor:
        """(N, C)."""
        return self.value

    @property
    def by_refits(self) -> bool:
        """Whether models without the samples were solved for."""
        return self.note.startswith(BY_REFITS) and bool(self.known.any())

    @property
    def known(self) -> Tensor:
        """(N,) which samples have outputs: among many, refits predict a part only."""
        return ~self.outputs.isnan().any(1)

    @property
    def error(self) -> float:
        """Weighted share of samples that would be misclassified."""
        return error_rate(*self._known())

    @property
    def standard_error(self) -> float:
        """Of the error, by the number of samples whose outputs are known; unequal weights are worth fewer."""
        return standard_error(self.error, effective_number(self._known()[2]))

    @property
    def balanced_error(self) -> float:
        """Mean of the classes' errors, however many samples each has."""
        outputs, labels, weights = self._known()
        return error_rate(outputs, labels, balanced(weights, labels))

    @property
    def balanced_standard_error(self) -> float:
        """Of the balanced error."""
        _, labels, weights = self._known()
        return standard_error(self.balanced_error, effective_number(balanced(weights, labels)))

    @property
    def predicted(self) -> Tensor:
        """(N,) classes."""
        return decide(self.outputs)

    def temperature(self) -> float:
        """Calibrated inverse temperature."""
        outputs, labels, weights = self._known()
        return calibrate(outputs, labels, judging_weights(self.choose_by, weights, labels))

    def probabilities(self) -> Tensor:
        """(N, n_classes) out-of-sample probabilities, at the temperature that is calibrated on all of them."""
        return probabilities(self.outputs, self.temperature())

    def suspicion(self) -> Tensor:
        """(N,) how strongly the other samples contradict the label: best other score minus the label's own.

        NaN where the outputs are not known.
        """
        if self.outputs.shape[1] == 1:
            return (1 - 2 * self.labels.to(self.outputs)) * 2 * self.outputs[:, 0]
        own = self.outputs.gather(1, self.labels[:, None].to(self.outputs.device))[:, 0]
        others = self.outputs.scatter(1, self.labels[:, None].to(self.outputs.device), -torch.inf)
        return others.amax(1) - own

    def to_dict(self) -> dict[str, Any]:
        """What holds for all samples, as JSON values; errors are None where nothing is known."""
        known = int(self.known.sum())
        names = ("error", "standard_error", "balanced_error", "balanced_standard_error")
        errors = {name: getattr(self, name) if known else None for name in names}
        return {"n": len(self.labels), "known": known, **errors, "level": self.level, "note": self.note}

    def _known(self) -> tuple[Tensor, Tensor, Tensor]:
        known = self.known
        return (
            self.outputs[known],
            self.labels[known.to(self.labels.device)],
            self.weights[known.to(self.weights.device)],
        )
