"""The training problem of a saved model, made again: same point, folds, ridge strengths, pooling, views and prefix."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from lqf.data import Images
from lqf.errors import LQFError
from lqf.fitting.context import Context
from lqf.fitting.encoder import Encoder
from lqf.fitting.fitted_model import FittedModel, check_not_a_sum
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.knowledge import Tensors, factorised, fits, remembered
from lqf.fitting.point import Kind, Point, no_point
from lqf.fitting.pose import outlined
from lqf.fitting.training_problem import TrainingProblem
from lqf.fitting.training_set import TrainingSet
from lqf.linear import sweep
from lqf.linear.ridge import Ridge
from lqf.utils import naming

SAME = 1e-3
"""Relative difference of what another machine, or another batch size, makes of the same point or features, at most."""


def reopen(model: FittedModel, images: Images, context: Context) -> TrainingProblem:
    """The problem that the model solves, over its training images; the point is compared with the one that was stored.

    A network that was trained solves none: the problem is that of a closed-form head on its features.

    Args:
        model: fitted.
        images: its training images (`lqf.fitting.training_data.open_training`).
        context: device, progress and rows per batch; all other settings are the model's own.
    """
    check_not_a_sum(model.report)
    settings = replace(model.settings, linearize=model.stage, batch_size=context.settings.batch_size)
    if settings.augment != "none":
        raise LQFError(
            f"the model was fitted on random views (augment {settings.augment!r}), which no training sample can be "
            f"taken out of; fit with {naming.given('augment', 'none')}"
        )
    if model.head_alone:
        settings = replace(settings, form="centred")  # a head alone is always penalised around zero
    context = replace(context, settings=settings)
    encoder = Encoder(TrainingSet(images, model.trained_on, context), model.backbone)
    if not model.solved:
        return _around_trained(encoder, model)
    known = None if model.known is None else model.known.read(context.progress.say)
    if known is not None and fits(known, len(images) * images.n_views):
        return _from(known, encoder, model)
    head = HeadFit.at(encoder, model.report.pooling, model.report.point_ridge)
    outline = outlined(head, no_point(head.acting.head) if model.head_alone else model.kept_point)
    problem = replace(outline, quadratic=outline.quadratic.with_ridge(model.report.ridge))
    _check_point(model, problem)
    return problem


def _from(known: Tensors, encoder: Encoder, model: FittedModel) -> TrainingProblem:
    """The problem from what its fit knew: no pass over the data, and nothing factorised again."""
    data, device = encoder.data, encoder.context.device
    rows, groups = data.weights, data.groups.to(device)
    made = factorised(known, rows, groups) if model.head_alone else None
    head = HeadFit.known(encoder, model.report.pooling, known["features"].to(device), model.report.point_ridge, made)
    point = no_point(head.acting.head)
    if not model.head_alone:
        assert model.report.point is not None
        point = Point(cast("Kind", model.report.point), known["heads"], known["fold"])
    outline = outlined(head, point)
    problem = replace(outline, quadratic=outline.quadratic.with_ridge(model.report.ridge))
    _check_point(model, problem)
    _check_network(problem)
    if model.head_alone:
        return problem
    c = problem.model.n_outputs
    pairs = (rows.repeat_interleave(c), groups.repeat_interleave(c))
    return replace(problem, kept=factorised(known, *pairs), remembered=remembered(known, problem))


def _around_trained(encoder: Encoder, model: FittedModel) -> TrainingProblem:
    """The problem of the closed-form head on the features of a network that was trained and not solved."""
    head = HeadFit.of(encoder, model.report.pooling, encoder.features())
    outline = outlined(head, no_point(head.acting.head))
    return replace(outline, quadratic=outline.quadratic.with_ridge(Ridge(head.choice.mu, head.choice.mu)))


def _check_point(model: FittedModel, problem: TrainingProblem) -> None:
    """The head at the point depends on everything before it; if it is the same, so is the problem."""
    if model.head_alone:
        return
    stored = model.point
    made = problem.model.of_all_features(problem.model.heads.mean(0))[:, :-1].to(stored)
    _check_same("linearisation point", stored, made)


def _check_network(problem: TrainingProblem) -> None:
    """Features that were computed before are those of this network: by the first sample of every process."""
    encoder, inputs = problem.head_fit.encoder, problem.head_fit.encoder.inputs
    first = torch.tensor(inputs.world.all_gather(inputs.images.own.start))
    made = sweep.features(encoder.reader, inputs.take(first))
    rows = (first[:, None] * inputs.n_views + torch.arange(inputs.n_views)).flatten()
    _check_same("features of the training images", problem.features[rows.to(problem.features.device)], made)


def _check_same(what: str, stored: Tensor, made: Tensor) -> None:
    gap = float((stored - made.to(stored)).norm() / stored.norm().clamp_min(1e-30))
    if gap > SAME:
        raise LQFError(
            f"the {what} cannot be made again (a difference of {gap:.1%}): "
            "the network, the settings or lqf itself have changed since the fit; fit again"
        )
