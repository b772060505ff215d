"""A fitted model: everything a prediction needs, the settings it was fitted by, and what the fit said about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess
from lqf.errors import LQFError
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.knowledge import Known
from lqf.fitting.point import Point
from lqf.fitting.ready import CPU, ReadyModel
from lqf.fitting.report import FitReport
from lqf.linear import sweep
from lqf.linear.inputs import average_views
from lqf.linear.model import with_one
from lqf.settings import Settings, Setup
from lqf.utils.notebook import Shown
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import counted

FINETUNING = "finetune"
"""In place of a solver's name: of networks that were trained by mini-batches, and not solved."""

SUM = "sum"
"""Likewise: of sums of models (`lqf.changes.arithmetic`), which are the optimum of no training problem."""


def check_not_a_sum(report: FitReport) -> None:
    """Refuse questions about training samples that a sum of models, or of stacks, cannot answer."""
    if report.solver == SUM:
        raise LQFError(
            "the model is a sum of fitted models and solves no training problem of its own: leave-one-out, and "
            "questions about training samples, are for the models it was made of"
        )


@dataclass(frozen=True)
class TrainingTable:
    """What is kept of the training samples: enough to name them, to open them again, and to recognise changed files.

    ``source`` is the folder or manifest as it was given to the fit; None: an array or a data set of the caller's.
    ``shape`` is that of one image, where images were arrays or tensors: (H, W), (H, W, C) or a tensor's. ``added`` are
    the sources of samples that came later, and ``origin`` (N,) says which sample is of which: 0 of ``source``, k of
    ``added[k - 1]``; None: all of ``source``.
    """

    ids: tuple[str, ...]
    labels: np.ndarray
    weights: np.ndarray
    groups: tuple[str, ...] | None
    hashes: tuple[str, ...]
    source: str | None = None
    shape: tuple[int, ...] | None = None
    added: tuple[str | None, ...] = ()
    origin: np.ndarray | None = None

    @property
    def origins(self) -> np.ndarray:
        """(N,) the source of every sample."""
        return np.zeros(len(self.ids), np.int64) if self.origin is None else self.origin

    def select(self, rows: np.ndarray) -> TrainingTable:
        """Some of the samples, in this order; sources of which none is left are forgotten but for the first."""
        origins = self.origins[rows]
        used = [k for k in range(1, len(self.added) + 1) if (origins == k).any()]
        number = {0: 0, **{k: i for i, k in enumerate(used, 1)}}
        return replace(
            self,
            ids=tuple(self.ids[i] for i in rows),
            labels=self.labels[rows],
            weights=self.weights[rows],
            groups=None if self.groups is None else tuple(self.groups[i] for i in rows),
            hashes=tuple(self.hashes[i] for i in rows),
            added=tuple(self.added[k - 1] for k in used),
            origin=np.array([number[k] for k in origins.tolist()], np.int64) if used else None,
        )

    def __repr__(self) -> str:
        return f"TrainingTable({counted(len(self.ids), 'image')} of {self.source or 'data in memory'})"


@dataclass(frozen=True, eq=False)
class FittedModel(Shown):
    """f(x) = c + V z̃(x) + W̄ J_z(x) δ_body, averaged over the image's views.

    Attributes:
        backbone: the network.
        preprocess: pixels to inputs, for predictions.
        classes: names.
        alpha: scale of the targets.
        constant: c.
        head: (C, p+1) V, the point's own head included where the expansion starts there.
        point: (C, p) W̄, the head through which the body's change reaches the outputs.
        stage: from which stage on the body was linearised, or "all".
        delta: (D,) the change of those weights; empty for a head alone.
        beta: inverse temperature of the probabilities.
        train: the training samples.
        loo: leave-one-out, where it is known.
        report: what the fit did.
        settings: by which it was fitted.
        setup: with which network and images were opened.
        tried: out-of-sample outputs (N, C) of every model that a climb has tried, by name.
        trained_views: of every training image; None: those of predictions.
        known: what questions about the training images need; None: nothing is known but the model.
        kept_point: the heads at the linearisation point, where they were made of other samples than those of the
            training set, which has changed since; None: as a fit to the training set makes them.
    """

    backbone: Backbone
    preprocess: Preprocess
    classes: tuple[str, ...]
    alpha: float
    constant: float
    head: Tensor
    point: Tensor
    stage: str
    delta: Tensor
    beta: float
    train: TrainingTable
    loo: LeaveOneOut | None
    report: FitReport
    settings: Settings
    setup: Setup = field(default_factory=Setup)
    tried: Mapping[str, Tensor] = field(default_factory=dict)
    trained_views: str | None = None
    known: Known | None = None
    kept_point: Point | None = None

    def __repr__(self) -> str:
        return f"FittedModel({self.headline})"

    @property
    def what(self) -> str:
        """What it is: which part of which network was fitted."""
        network = self.report.backbone.removeprefix("module:")
        if self.report.solver == SUM:
            return f"sum of models of {network}"
        if not self.solved:
            return f"{network}, fine-tuned"
        if self.head_alone:
            return f"closed-form head of {network}"
        return f"LQF of {network}" if self.stage == "all" else f"LQF of {network} from `{self.stage}` on"

    @property
    def headline(self) -> str:
        """What it is, and its error."""
        return f"{self.what}; {self.report.headline}"

    @property
    def members(self) -> tuple[FittedModel]:
        """Itself: what a stack has several of."""
        return (self,)

    @property
    def weights(self) -> tuple[float]:
        """Of its one member."""
        return (1.0,)

    @property
    def main(self) -> FittedModel:
        """Itself, as a stack's largest member."""
        return self

    @property
    def answering(self) -> FittedModel:
        """Itself, as the member of a stack that answers questions about training samples."""
        return self

    @property
    def head_alone(self) -> bool:
        """Whether only the last layer was solved for."""
        return len(self.delta) == 0

    @property
    def solved(self) -> bool:
        """Whether it is the optimum of a training problem, so that questions about training samples have answers."""
        return self.report.solver != FINETUNING

    @property
    def trained_on(self) -> Preprocess:
        """Pixels to inputs, for the training images."""
        return self.preprocess if self.trained_views is None else replace(self.preprocess, views=self.trained_views)

    def ready(self, device: torch.device, batch_size: int, images: int) -> ReadyModel:
        """For so many images, which come in parts."""
        return ReadyModel(self, device, batch_size, images)

    def outputs(self, images: Images, *, device: torch.device, batch_size: int, progress: Progress = SILENT) -> Tensor:
        """f of every image, (N, C), on the CPU."""
        return self.ready(device, batch_size, len(images)).outputs(images, progress)

    def features(self, images: Images, *, device: torch.device, batch_size: int, progress: Progress = SILENT) -> Tensor:
        """z of every image, (N, p), on the CPU: what the head sees, averaged over the image's views."""
        ready = self.ready(device, batch_size, len(images))
        return average_views(
            sweep.features(ready.body, ready.inputs(images), progress=progress, collect=CPU), images.n_views
        )

    def outputs_of(self, features: Tensor, n_views: int) -> Tensor:
        """f (N, C) on the CPU, of a head alone, from the features (N·V, p) of all rows."""
        assert self.head_alone
        rows = self.constant + with_one(features) @ self.head.to(features).T
        return average_views(rows.cpu(), n_views)
