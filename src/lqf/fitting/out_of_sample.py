"""Leave-one-out of a fit: from the kernels it was chosen by, or from refits; and the temperature that follows."""

from __future__ import annotations

from dataclasses import replace

from lqf.evaluation.calibration import calibrate
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.pose import loo_bias, with_kernels
from lqf.fitting.refits import refit_folds
from lqf.fitting.select_ridge import Choice
from lqf.fitting.training_problem import TrainingProblem
from lqf.fitting.training_set import TrainingSet
from lqf.kernels.tangent import Kernels
from lqf.settings import view_count
from lqf.utils.exactness import Level

PRIOR_SPREAD = 40.0
"""β·α that fits the outputs of heads with one image per class on tasks of 2 to 40 classes drawn from seven training
sets. The best one is 40 for both poolings together (30 to 60 by number of classes), 40 at 96 px and 60 at 224 px for
bilinear pooling alone, 20 and 30 for average pooling (`benchmarks/results/one_shot-*.json`)."""
UNMEASURED = "around a network that was moved with all labels in sight, which flatters it by an unknown amount"


def leave_one_out(problem: TrainingProblem, shown: str | None = None) -> LeaveOneOut | None:
    """Out-of-sample outputs of a solved problem; None where they were not wanted or cannot be had.

    ``shown``: views of predictions, where these are not all that were trained on.
    """
    if problem.data.alone:
        return None
    with problem.context.timed("leave-one-out"):
        first = None if shown is None else view_count(shown)
        return _around_one_point(problem, first) if problem.moves is None else _of_moved(problem, first)


def _around_one_point(problem: TrainingProblem, first: int | None) -> LeaveOneOut | None:
    asked, can_refit = problem.context.settings.loo, problem.plan is not None and problem.plan.solver == "pcg"
    if problem.kernels is None and can_refit and asked != "kernel":
        return None if asked == "none" else refit_folds(problem, every=asked == "folds", first=first)
    problem = with_kernels(problem)
    kernels, choice = problem.kernels, problem.choice
    assert kernels is not None
    assert choice is not None
    way = way_to_leave_out(asked, kernels, len(problem.data), can_refit=can_refit)
    if way == "folds" and can_refit:
        return refit_folds(problem, every=asked == "folds", first=first)
    return from_kernels(kernels, choice, problem.data, loo_bias(problem, first), first) if way == "kernel" else None


def _of_moved(problem: TrainingProblem, first: int | None) -> LeaveOneOut | None:
    """By refits that begin at the pretrained weights; around the last point only where asked."""
    asked = problem.context.settings.loo
    if asked == "none":
        return None
    if asked != "kernel":
        problem.release()  # whole refits need the memory
        return refit_folds(problem, every=asked == "folds", first=first)
    assert problem.kernels is not None
    assert problem.choice is not None
    loo = from_kernels(problem.kernels, problem.choice, problem.data, None, first)
    notes = [n for n in (loo.note if loo else "", UNMEASURED) if n]
    return loo and replace(loo, level="estimated", note="; ".join(notes))


def way_to_leave_out(asked: str, kernels: Kernels, n_samples: int, *, can_refit: bool) -> str:
    """One of "folds", "kernel" and "none": an exact kernel of all samples is the best there is."""
    if kernels.exact and len(kernels.samples) == n_samples and asked != "none":
        return "kernel"
    if asked == "auto":
        return "folds" if can_refit else "kernel"
    return asked


def from_kernels(
    kernels: Kernels, choice: Choice, data: TrainingSet, bias: float | None, first: int | None = None
) -> LeaveOneOut | None:
    """At the chosen ridge strengths; None where the kernels only stand for a part of the samples.

    Args:
        kernels: by which the strengths were chosen.
        choice: these, with leave-one-out residuals.
        data: the training set.
        bias: by how much a point that has seen the labels flatters, where that was measured.
        first: so many views speak for a sample; default: all.
    """
    if len(kernels.samples) < len(data):
        return None
    level: Level = "exact" if kernels.exact else "estimated"
    notes = [] if kernels.exact else ["roughly, by the kernel averaged over the outputs"]
    if bias is not None:
        notes.append(f"the linearisation point has seen the labels, which flatters it by about {100 * bias:.1f} points")
    return data.left_out(data.judge.outputs(choice.e_loo, first), level, "; ".join(notes))


def prior_temperature(data: TrainingSet) -> float:
    """Inverse temperature where every class has one image (see `PRIOR_SPREAD`)."""
    return PRIOR_SPREAD / data.context.settings.alpha


def temperature(problem: TrainingProblem, loo: LeaveOneOut | None, shown: str | None = None) -> float:
    """Inverse temperature of the probabilities, from out-of-sample outputs: of the model where they are honest.

    Otherwise from the kernels it was chosen by. Around a moved network these flatter, and the closed-form head at the
    pretrained weights stands in. Where nothing can be left out it is a prior. ``shown`` as of `leave_one_out`.
    """
    if problem.data.alone:
        return prior_temperature(problem.data)
    if loo is not None and (problem.moves is None or problem.context.settings.loo != "kernel"):
        return loo.temperature()
    if problem.moves is not None:
        judge, choice = problem.data.judge, problem.moves.head
    else:
        problem = with_kernels(problem)
        assert problem.kernels is not None
        assert problem.choice is not None
        judge, choice = problem.data.judge.of(problem.kernels.samples), problem.choice
    first = None if shown is None else view_count(shown)
    return calibrate(judge.outputs(choice.e_loo, first), judge.labels, judge.weights)
