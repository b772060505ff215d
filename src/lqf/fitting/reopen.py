"""The training problem of a saved model, made again: same point, folds, ridge strengths, pooling, views and prefix."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from lqf.data import Images
from lqf.errors import LQFError
from lqf.fitting.context import Context
from lqf.fitting.encoder import Encoder
from lqf.fitting.fitted_model import FittedModel
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.pose import outlined
from lqf.fitting.training_problem import TrainingProblem
from lqf.fitting.training_set import TrainingSet
from lqf.linear.ridge import Ridge
from lqf.utils import naming


def reopen(model: FittedModel, images: Images, context: Context) -> TrainingProblem:
    """The problem that the model solves, over its training images; the point is compared with the one that was stored.

    A network that was trained solves none: the problem is that of a closed-form head on its features.

    Args:
        model: fitted.
        images: its training images (`lqf.fitting.training_data.open_training`).
        context: device, progress and rows per batch; all other settings are the model's own.
    """
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
    head = HeadFit.at(encoder, model.report.pooling, model.report.point_ridge)
    outline = outlined(head)
    problem = replace(outline, quadratic=outline.quadratic.with_ridge(model.report.ridge))
    if not model.head_alone:
        made = problem.model.of_all_features(problem.model.heads.mean(0))
        _check_point(model.point, made[:, :-1])
    return problem


def _around_trained(encoder: Encoder, model: FittedModel) -> TrainingProblem:
    """The problem of the closed-form head on the features of a network that was trained and not solved."""
    head = HeadFit.of(encoder, model.report.pooling, encoder.features())
    outline = outlined(head)
    return replace(outline, quadratic=outline.quadratic.with_ridge(Ridge(head.choice.mu, head.choice.mu)))


def _check_point(stored: Tensor, made: Tensor, tol: float = 1e-3) -> None:
    """The head at the point depends on everything before it; if it is the same, so is the problem."""
    made = made.to(stored)
    gap = float((stored - made).norm() / stored.norm().clamp_min(1e-30))
    if gap > tol:
        raise LQFError(
            f"the linearisation point cannot be made again (it differs by {gap:.1%}): "
            "the network, the settings or lqf itself have changed since the fit; fit again"
        )
