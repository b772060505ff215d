"""What became of one model in a change: solved again, dropped from a stack, trained again, or fitted again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from lqf.fitting import FittedModel, TrainingProblem
from lqf.linear.ridge import Ridge
from lqf.solvers.solution import Solution

Fate = Literal["solved again", "dropped", "trained again", "fitted again"]
SOLVED: Fate = "solved again"
DROPPED: Fate = "dropped"
RETRAINED: Fate = "trained again"
REFITTED: Fate = "fitted again"


@dataclass(frozen=True)
class Outcome:
    """One model after a change.

    Attributes:
        name: of the stack's member; "model" where there is no stack.
        fate: what was done with it.
        solver, level: of its solution; None where it was not solved.
        residual: ‖Hδ − b‖ on the changed training data.
        relative_residual: ‖Hδ − b‖ / ‖b‖.
        bound: on the distance from the optimum, ‖δ − δ*‖ ≤ residual / min(μ).
        strengths: ridge strengths μ of head and body.
        passes: products over the data that the solve took.
        passes_of_fit: products that the fit took before the first change; None where that is not known.
        converged: whether the tolerance was reached.
        note: what else is to be said.
    """

    name: str
    fate: Fate
    solver: str | None = None
    level: str | None = None
    residual: float | None = None
    relative_residual: float | None = None
    bound: float | None = None
    strengths: Ridge | None = None
    passes: int | None = None
    passes_of_fit: int | None = None
    converged: bool = True
    note: str = ""

    @property
    def saved(self) -> int | None:
        """Products that the fit took and this change did not; None where it is not known."""
        if self.solver != "pcg" or self.passes is None or self.passes_of_fit is None:
            return None
        return self.passes_of_fit - self.passes

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        ridge = None if self.strengths is None else self.strengths.to_dict()
        return asdict(self) | {"strengths": ridge, "saved": self.saved}


@dataclass(frozen=True)
class Changed:
    """A model after a change, with the problem that it solves now.

    Attributes:
        model: the changed one.
        outcome: what was done with it.
        problem: its training problem, for what else is to be measured.
        solution: of that problem.
    """

    model: FittedModel
    outcome: Outcome
    problem: TrainingProblem
    solution: Solution
