"""Forget: the optimum without some samples, at the point and the strengths of the fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lqf.changes.samples.changed import changed_model
from lqf.changes.samples.correct import Before, added, gradient_of, left_for_the_head
from lqf.changes.samples.outcome import SOLVED, Changed, Outcome
from lqf.changes.samples.remaining import informed, without
from lqf.changes.samples.solve import distance, solve
from lqf.data import Images, with_views
from lqf.fitting import Context, FittedModel, TrainingProblem
from lqf.fitting.context import Clock
from lqf.fitting.knowledge import Knowledge
from lqf.fitting.reopen import reopen


def forget(
    model: FittedModel,
    stays: np.ndarray,
    remaining: Images,
    context: Context,
    everything: Callable[[], Images],
    gone: Callable[[], Images | None],
    name: str = "model",
) -> Changed:
    """The model of the samples that stay.

    Args:
        model: solved, not trained.
        stays: (N,) mask.
        remaining: the images of the samples that stay, in any views. Those that are forgotten may be gone already.
        context: device, progress, rows per batch.
        everything: opens all of the model's training images; called only where it did not keep its features.
        gone: opens those that are forgotten, where they still exist; conjugate gradients then take a product less.
        name: for the outcome.
    """
    context = replace(context, clock=Clock())
    known = informed(model, lambda: with_views(everything(), model.trained_on), context)
    left = without(known, stays)
    problem = reopen(left, with_views(remaining, model.trained_on), context)

    def before(problem: TrainingProblem) -> Before:
        images, old = gone(), problem.remembered
        own = None if old.residuals is None else left_for_the_head(problem, model, old.residuals)
        change = None
        if images is not None:
            rows = torch.from_numpy(~stays).repeat_interleave(model.trained_on.n_views)
            change = -gradient_of(problem, model, with_views(images, model.trained_on), _fold_of(known)[rows])[0]
        return Before(model.delta.to(problem.quadratic.targets), added(old.gap, change), own, old.ratio)

    return concluded(model, left, problem, {"what": "forgot", "samples": int((~stays).sum())}, name, before)


def _fold_of(model: FittedModel) -> Tensor:
    """(n,) the head of every training row, of a model that was `informed`."""
    if isinstance(model.known, Knowledge):
        return model.known.tensors["fold"]
    assert model.kept_point is not None
    return model.kept_point.fold


def concluded(
    model: FittedModel,
    left: FittedModel,
    problem: TrainingProblem,
    what: dict[str, object],
    name: str,
    before: Callable[[TrainingProblem], Before],
) -> Changed:
    """The changed problem solved, from where the solution was.

    Args:
        model: as it was.
        left: with the table of the samples now.
        problem: theirs.
        what: for the report.
        name: for the outcome.
        before: the solution that was, as the changed problem sees it.
    """
    of_fit = model.report.passes_of_fit
    same = problem.data.classes == model.classes
    problem, solution = solve(problem, model, before if same else None)
    proof, far = solution.certificate, distance(problem, solution)
    outcome = Outcome(
        name,
        SOLVED,
        solver=solution.solver,
        level=solution.level,
        residual=far.residual,
        relative_residual=proof.relative_residual,
        bound=far.bound,
        strengths=solution.ridge,
        passes=proof.passes,
        passes_of_fit=of_fit,
        converged=proof.converged,
    )
    entry = {**what, "solver": solution.solver, "passes": proof.passes, "passes_of_fit": of_fit}
    changed = changed_model(model, left.train, problem, solution, entry)
    problem.release()
    return Changed(changed, outcome, problem, solution)


def refitted(changed: Changed, remaining: Images, context: Context) -> FittedModel:
    """The same problem solved from nothing: features, kernel and solution made again of the images that stay."""
    model = replace(changed.model, known=None)
    problem = reopen(model, with_views(remaining, model.trained_on), replace(context, clock=Clock()))
    problem, solution = solve(problem, model)
    again = changed_model(model, model.train, problem, solution, {})
    problem.release()
    return again
