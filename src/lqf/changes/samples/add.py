"""Add: the optimum with further samples, at the point and the strengths of the fit; of new classes, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from lqf.changes.samples.correct import Before, added, beside_the_head, gradient_of, left_for_the_head
from lqf.changes.samples.extended import with_images
from lqf.changes.samples.forget import concluded
from lqf.changes.samples.outcome import Changed
from lqf.changes.samples.remaining import informed
from lqf.data import Images, with_views
from lqf.fitting import Context, FittedModel, TrainingProblem, TrainingTable
from lqf.fitting.context import Clock
from lqf.fitting.reopen import reopen


def add(
    model: FittedModel,
    table: TrainingTable,
    old: Callable[[], Images],
    new: Images,
    context: Context,
    name: str = "model",
) -> Changed:
    """The model of all samples.

    Args:
        model: solved, not trained.
        table: of all samples (`lqf.changes.samples.newcomers.grown`).
        old: opens the training images so far.
        new: the others, in any views, with labels by the classes of all.
        context: device, progress, rows per batch.
        name: for the outcome.
    """
    context = replace(context, clock=Clock())
    own, classes = with_views(old(), model.trained_on), new.samples.classes
    problem = reopen(informed(model, lambda: own, context), own, context)
    grown_problem = with_images(problem, with_views(new, model.trained_on), classes, head_alone=model.head_alone)
    what = {"what": "added", "samples": len(new), "classes": len(classes) - len(model.classes)}

    known = problem.remembered

    def before(problem: TrainingProblem) -> Before:
        rows = len(problem.quadratic.targets) - len(new) * model.trained_on.n_views
        counts, images = beside_the_head(problem, rows), with_views(new, model.trained_on)
        gradient, e = gradient_of(problem, model, images, None, counts)
        body, left = model.delta.to(problem.quadratic.targets), None
        if known.residuals is not None:
            left = left_for_the_head(problem, model, torch.cat([known.residuals, e]))
        return Before(body, added(known.gap, gradient), left, known.ratio)

    return concluded(model, replace(model, train=table), grown_problem, what, name, before)
