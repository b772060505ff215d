"""Why one class and not another: what leaving out training samples does to one score of every prediction.

The score of an image is the log-odds of one class against another, β(f_a − f_b): the predicted class against the
runner-up, or a class that was asked for against the best of the others. One score is one sum of outputs, so that it
costs one pass over the training rows, or one solve, where all outputs cost one each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.analysis.unit_effects import UnitEffects
from lqf.linear.targets import logits


@dataclass(frozen=True, kw_only=True, repr=False)
class Contrast(UnitEffects):
    """Signed effect (U, Q) of leaving out every unit on the log-odds of one class against another, of every query.

    Attributes:
        first: (Q,) a, the classes that are explained.
        second: (Q,) b, those they are held against.
    """

    first: Tensor
    second: Tensor

    @property
    def effects(self) -> Tensor:
        """(U, Q): by how much the log-odds change when unit S is left out."""
        return self.value

    @property
    def log_odds(self) -> Tensor:
        """(Q,) of a against b, as predicted."""
        scores = self.beta * logits(self.outputs.double())
        pair = scores.gather(1, torch.stack([self.first, self.second], 1))
        return pair[:, 0] - pair[:, 1]


def classes_of(outputs: Tensor, of: int | None = None) -> tuple[Tensor, Tensor]:
    """(Q,) a and b of outputs (Q, C): the predicted class (or ``of``) and the best one of the others."""
    scores = logits(outputs)
    first = scores.argmax(1) if of is None else torch.full((len(scores),), of)
    return first, scores.scatter(1, first[:, None], -torch.inf).argmax(1)


def weights_of(first: Tensor, second: Tensor, n_outputs: int) -> Tensor:
    """(Q, C) weights w of the outputs with f_a − f_b = w·f."""
    if n_outputs == 1:  # the second class alone has an output
        return (first - second).double()[:, None]
    return (torch.eye(n_outputs)[first] - torch.eye(n_outputs)[second]).double()
