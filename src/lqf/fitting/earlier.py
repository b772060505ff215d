"""Whether a climb can go on from an earlier model: the same samples, network and settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess
from lqf.errors import LQFError
from lqf.fitting.stack import Model
from lqf.settings import Settings
from lqf.utils import naming


def check_same(model: Model, images: Images, settings: Settings, backbone: Backbone, preprocess: Preprocess) -> None:
    """LQFError, naming what is different, where a model is not one of these samples and settings."""
    if not model.report.rungs:
        raise LQFError(
            f"the earlier model was not fitted by climbing (its solver was named); fit without {_going_on()}"
        )
    now, then = settings.of_problem(), model.settings.of_problem()
    other = [name for name in now if now[name] != then[name]]
    if other:
        raise LQFError(
            f"the earlier model was fitted with other settings ({', '.join(other)}); give the same ones, or no "
            f"{_going_on()}"
        )
    if any(model.backbone.spec.get(key) != backbone.spec.get(key) for key in ("state_sha256", "leaky")):
        raise LQFError(
            f"the earlier model stands on another network ({model.backbone.name}); fit without {_going_on()}"
        )
    if replace(model.preprocess, views="none") != replace(preprocess, views="none"):
        raise LQFError(
            "the earlier model saw images of another size, or other crops of them; give the same "
            f"{', '.join(map(naming.name, ('size', 'squash', 'crop_area')))} and {naming.name('crop_ratio')}, "
            f"or no {_going_on()}"
        )
    samples, train = images.samples, model.train
    same = samples.ids == train.ids and images.hashes == train.hashes and samples.groups == train.groups
    pairs = ((samples.labels, train.labels), (samples.weights, train.weights))
    if not same or not all(np.array_equal(now, then) for now, then in pairs):
        raise LQFError(f"the earlier model was fitted on other images or labels; fit without {_going_on()}")


def _going_on() -> str:
    """How one asks to go on from an earlier model."""
    return naming.either("--resume", "earlier=")
