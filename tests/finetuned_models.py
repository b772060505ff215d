"""Small fine-tuned networks without a climb."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from fits import CPU, convnet, kind
from lqf.backbones import Backbone, load_backbone
from lqf.data import Preprocess, load_samples, open_images
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting import Context, FittedModel, TrainingSet
from lqf.fitting import finetuned as module
from lqf.fitting.assemble import assemble_finetuned
from lqf.fitting.finetuned import Tuned, finetuned
from lqf.runtime.distributed import ALONE, World
from lqf.settings import Settings
from lqf.utils.progress import SILENT, Progress

CROPPED = Preprocess(size=8, keep_aspect=True)
"""As a classifier has it that is given size 8."""


@contextmanager
def short(epochs: int = 3) -> Iterator[None]:
    """Fine-tunings of so many epochs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EPOCHS", epochs)
        yield


def training(
    x: Any,
    y: np.ndarray | None = None,
    sample_weight: np.ndarray | None = None,
    *,
    groups: Any = None,
    progress: Progress = SILENT,
    world: World = ALONE,
    **settings: Any,
) -> TrainingSet:
    """In one view, unless the settings say otherwise."""
    context = Context(Settings(**{"dtype": "float64", "views": "none", **settings}), CPU, world, progress)
    samples = load_samples(x, y, sample_weight=sample_weight, groups=groups, tensors=kind(x))
    return TrainingSet.of(open_images(samples, CROPPED), CROPPED, context)


def tuned(data: TrainingSet, backbone: Backbone | None = None, epochs: int = 3) -> Tuned:
    """The small network for pictures, by default."""
    with short(epochs):
        return finetuned(data, backbone or load_backbone(convnet()))


def tuned_model(
    x: Any, y: np.ndarray | None = None, *, shown: str = "none", backbone: Backbone | None = None, **options: Any
) -> FittedModel:
    """Fine-tuned, with made-up outputs of networks without each fold."""
    data = training(x, y, **options)
    noise = torch.randn(data.targets.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    loo = data.left_out(0.5 * data.targets.cpu() + noise, "estimated", "by networks that were made up")
    assert isinstance(loo, LeaveOneOut)
    return assemble_finetuned(tuned(data, backbone), loo, shown)
