"""How accurate an answer by iteration is wanted, what it may cost, and what it says about itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lqf.fitting import FittedModel
from lqf.utils.exactness import Level
from lqf.utils.text import percent

USUAL = 12
"""Passes of a fit, where the model was not solved by conjugate gradients."""

LEAST = 4
"""Passes that any answer may take: an estimate takes one, to see how good it is and go on two more. Fits whose first
residual proves that they are near enough take two themselves."""


@dataclass(frozen=True)
class Wanted:
    """Accuracy of an answer, and the most it may cost.

    Attributes:
        of: what is as accurate, in words.
        tol: its error, relative to its size, that the order and the values of an answer bear.
        share: passes that it may take, of those of the fit's own solve.
    """

    of: str
    tol: float
    share: float

    def passes(self, model: FittedModel) -> int:
        """Over the training rows, forward and backward being one, at most."""
        own = model.report.passes_of_fit if model.report.solver == "pcg" else None
        return max(LEAST, int(self.share * (own or USUAL)))

    def level(self, gap: float) -> Level:
        """Of an answer with this estimated error."""
        return "solved" if gap <= self.tol else "estimated"

    def note(self, gap: float) -> str:
        """That error, and why it is larger than was wanted."""
        if gap <= self.tol:
            return f"{self.of} within {percent(gap)}"
        share = "all passes" if self.share == 1 else f"{percent(self.share)} of the passes"
        known = f"within {percent(gap)}" if math.isfinite(gap) else "of unknown accuracy"
        return f"{self.of} {known}: {percent(self.tol)} would take more than {share} of the fit's own solve"


SCORES = Wanted("responses", 0.02, 1.0)
"""Of the training rows to the score of an image."""
WHAT_IF = Wanted("the change of the training outputs", 0.05, 0.5)
"""Which is itself a small part of the outputs."""
