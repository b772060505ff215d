"""The training problem of LQF on a task, to be solved several times: other ridge strengths, starts, or fewer images.

A fit solves its problem once. The experiments on weight decay, on data that arrive in steps and on images that leave
ask for many solutions of one `lqf.fitting.TrainingProblem`, which shares features, point, curvature and recorded
passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess
from lqf.fitting import Context, TrainingProblem, TrainingSet
from lqf.fitting.pose import pose_unplanned
from lqf.fitting.select_pooling import select_pooling
from lqf.linear.ridge import Ridge
from lqf.settings import Settings
from lqf.utils.progress import SILENT, Progress

LQF: Mapping[str, Any] = {"solver": "pcg", "views": "none", "loo": "none"}
"""Settings of every solve here, on top of a fit's defaults."""


def lqf_problem(
    backbone: Backbone,
    images: Images,
    preprocess: Preprocess,
    device: torch.device,
    *,
    progress: Progress = SILENT,
    ridge: Ridge | None = None,
    **options: Any,
) -> TrainingProblem:
    """From images; the ridge strengths are a fit's own choice, or ``ridge``; options as of `Settings`."""
    context = Context(Settings(**{**LQF, **options}), device, progress=progress)
    head = select_pooling(TrainingSet.of(images, preprocess, context), backbone)
    return pose_unplanned(head, ridge)
