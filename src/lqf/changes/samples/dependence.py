"""What in a model has seen samples that were forgotten, and was not made again."""

from __future__ import annotations

from collections.abc import Mapping

from lqf.fitting import FittedModel, Model, Stack
from lqf.fitting.knowledge import STRENGTH, Knowledge

POINT = "linearisation point"
STRENGTHS = "ridge strengths"
POOLING = "choice of the pooling"
CHANNELS = "channels of bilinear pooling"
VIEWS = "choice of the views"
NETWORK = "weights of the network that was moved before it was linearised"
LEVERAGES = "strength of the kernel by which leverages are estimated"
TEMPERATURE = "temperature of the probabilities"
CLASS_WEIGHTS = "weights of the classes"
MODELS = "choice among the models of a climb"
STACK_WEIGHTS = "weights in the stack"


def depends_on(model: Model, before: Model) -> tuple[str, ...]:
    """By the settings of the fit; ``before``: the model as it was."""
    settings = model.settings
    found = dict.fromkeys(name for member in model.members for name in _of_one(member))
    if model.report.class_weights is not None and settings.class_weight == "balanced":
        found[CLASS_WEIGHTS] = None
    if any(_knows_leverages(member) for member in model.members):
        found[LEVERAGES] = None
    if model.loo is None:
        found[TEMPERATURE] = None
    if settings.climbs:
        found[MODELS] = None
    if isinstance(before, Stack):
        found[STACK_WEIGHTS] = None
    return tuple(found)


def _knows_leverages(model: FittedModel) -> bool:
    known = model.known
    return isinstance(known, Knowledge) and any(name.startswith(STRENGTH) for name in known.tensors)


def _of_one(model: FittedModel) -> list[str]:
    """Of a model that is not a stack; one that was trained again has seen what is left alone."""
    settings, report = model.settings, model.report
    if not model.solved:
        return []
    pooling: Mapping[str, object] = model.backbone.spec.get("pooling", {})
    auto = {
        POINT: not model.head_alone and report.point != "random",
        STRENGTHS: "auto" in (settings.weight_decay, settings.body_weight_decay),
        POOLING: settings.pooling == "auto",
        CHANNELS: bool(pooling) and report.pooling != "avg",
        VIEWS: settings.views == "auto" or (settings.climbs and settings.predict_views == "auto"),
        NETWORK: "moved" in model.backbone.spec,
    }
    return [name for name, holds in auto.items() if holds]
