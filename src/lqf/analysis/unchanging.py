"""A member of a stack that has no closed form: what it says does not change with the training samples.

A fine-tuned network answers no question about its training samples. In a stack its part of the outputs stays as it is,
and the note says how large a part that is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from lqf.analysis.by_kernel import own_outputs
from lqf.analysis.counterfactual import Change
from lqf.analysis.queries import Queries
from lqf.analysis.unexplained import Unexplained
from lqf.analysis.units import Units
from lqf.errors import LQFError
from lqf.fitting import FittedModel, TrainingProblem
from lqf.utils.exactness import Answer, Level


@dataclass(eq=False)
class Unchanging:
    """Outputs of the model as it is.

    Attributes:
        model: fine-tuned.
        problem: of another member, which says where to compute.
    """

    model: FittedModel
    problem: TrainingProblem
    note: str = ""
    level: Level = "estimated"
    _outputs: WeakKeyDictionary[Queries, Tensor] = field(default_factory=WeakKeyDictionary, repr=False)

    def outputs(self, queries: Queries) -> Tensor:
        """f (Q, C); made once."""
        if queries not in self._outputs:
            self._outputs[queries] = own_outputs(self.model, queries, self.problem)
        return self._outputs[queries]

    def predictions(self, queries: Queries) -> Tensor:
        """Likewise."""
        return self.outputs(queries)

    def effects(self, queries: Queries, units: Units, chosen: Tensor | None) -> Answer:
        """None."""
        n = len(units) if chosen is None else len(chosen)
        outputs = len(self.model.head)
        return Answer(torch.zeros(n, len(queries), outputs, dtype=torch.float64), self.level)

    def effects_on_sums(self, queries: Queries, weights: Tensor, units: Units, *, quick: bool = False) -> Answer:
        """None."""
        return Answer(torch.zeros(len(units), len(queries), dtype=torch.float64), self.level)

    def seconds(self, images: int, *, quick: bool) -> float:
        """None."""
        return 0.0

    def out_of_sample(self, units: Units, samples: Tensor | None) -> Answer:
        """What the networks without each fold say."""
        if self.model.loo is None:
            raise LQFError("what the fine-tuned member of the stack says about unseen images is not known")
        known = self.model.loo.outputs.double()
        return Answer(known if samples is None else known[samples], self.level, self.model.loo.note)

    def information(self, queries: Queries | None, units: Units) -> Answer:
        """Not known; a stack asks another member."""
        raise LQFError("a fine-tuned network does not know what its training samples say")

    def leaving(self, queries: Queries | None, units: Units, *, most: bool, steps: int) -> Tensor:
        """Likewise."""
        raise LQFError("a fine-tuned network does not know what its training samples say")

    def prepare(self, queries: Queries) -> None:
        """Outputs."""
        self.outputs(queries)

    def what_if(self, queries: Queries, change: Change) -> Answer:
        """What it says as it is."""
        return Answer(self.outputs(queries), self.level)

    def changed_out_of_sample(self, units: Units, change: Change) -> Answer:
        """Likewise, about unseen images."""
        return self.out_of_sample(units, None)

    def refitted(self, queries: Queries, keep: Tensor) -> Tensor:
        """Likewise."""
        return self.outputs(queries)

    def covariance(self, queries: Queries, units: Units) -> Answer:
        """Not known; a stack asks other members."""
        raise LQFError("a fine-tuned network does not know how sure it is")

    def noise(self, units: Units) -> float:
        """Likewise."""
        raise LQFError("a fine-tuned network does not know how sure it is")

    def unexplained(self, queries: Queries, units: Units) -> Unexplained:
        """Likewise."""
        raise LQFError("a fine-tuned network does not know how sure it is")
