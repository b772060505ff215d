"""Relabel: the optimum with other labels of some samples, at the point and the strengths of the fit.

Images, features and kernel stay what they are; only the targets move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lqf.changes.samples.correct import Before
from lqf.changes.samples.forget import concluded
from lqf.changes.samples.members import about
from lqf.changes.samples.outcome import Changed, Outcome
from lqf.changes.samples.remaining import informed
from lqf.data import Images, with_labels, with_views
from lqf.fitting import Context, FittedModel, TrainingProblem
from lqf.fitting.context import Clock
from lqf.fitting.reopen import reopen
from lqf.utils.text import counted


@dataclass(frozen=True)
class Relabelling:
    """What other labels did.

    Attributes:
        relabelled: number of samples whose label is another one now.
        n: number of training samples.
        members: what became of the model, or of each member of a stack.
        seconds: that it took.
    """

    relabelled: int
    n: int
    members: tuple[Outcome, ...]
    seconds: float

    @property
    def sentence(self) -> str:
        """One line."""
        what = f"{counted(self.relabelled, 'image')} of {self.n:,} relabelled"
        return "; ".join([what, *filter(None, [about(self.members)])])

    def __repr__(self) -> str:
        return f"Relabelling({self.sentence})"

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        members = [m.to_dict() for m in self.members]
        return {"relabelled": self.relabelled, "n": self.n, "members": members, "seconds": self.seconds}


def relabel(
    model: FittedModel, labels: np.ndarray, images: Callable[[], Images], context: Context, name: str = "model"
) -> Changed:
    """The model of samples with these labels.

    Args:
        model: solved, not trained.
        labels: (N,) in the model's classes.
        images: opens the training images, with the labels of before.
        context: device, progress, rows per batch.
        name: for the outcome.
    """
    context, given = replace(context, clock=Clock()), with_views(images(), model.trained_on)
    known = informed(model, lambda: given, context)
    moved = int((labels != model.train.labels).sum())
    left = replace(known, train=replace(model.train, labels=labels), loo=None, tried={})
    problem = reopen(left, with_labels(given, labels), context)

    def before(problem: TrainingProblem) -> Before:
        return Before(model.delta.to(problem.quadratic.targets), ratio=problem.remembered.ratio)

    return concluded(model, left, problem, {"what": "relabelled", "samples": moved}, name, before)
