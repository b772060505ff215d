"""A training problem as a fit poses it, before anything is planned or chosen."""

from __future__ import annotations

import torch

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess
from lqf.fitting import Context, HeadFit, TrainingProblem, TrainingSet
from lqf.fitting.encoder import Encoder
from lqf.fitting.pose import outlined
from lqf.settings import Settings


def outline(
    settings: Settings, backbone: Backbone, images: Images, preprocess: Preprocess, device: torch.device
) -> TrainingProblem:
    """Around the closed-form head with ridge strength 1, or a random one where the settings ask for it."""
    data = TrainingSet.of(images, preprocess, Context(settings, device))
    return outlined(HeadFit.at(Encoder(data, backbone), "the backbone's own", 1.0))
