"""A fitted model: everything a prediction needs, and what the fit said about itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fast import FastLinearization
from lqf.linear.inputs import Inputs, average_views
from lqf.linear.linearize import Linearization, linearized_body
from lqf.linear.model import with_one
from lqf.utils.progress import SILENT, Progress


@dataclass
class TrainingTable:
    """What is kept of the training samples: enough to name them, to open them again, and to recognise changed files.

    ``source`` is the folder or manifest as it was given to the fit; None: an array or a data set of the caller's.
    """

    ids: tuple[str, ...]
    labels: np.ndarray
    weights: np.ndarray
    groups: tuple[str, ...] | None
    hashes: tuple[str, ...]
    source: str | None = None


@dataclass
class Fitted:
    """f(x) = c + V z̃(x) + W̄ J_z(x) δ_body, averaged over the image's views.

    Attributes:
        backbone: the network.
        preprocess: pixels to inputs.
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
        report: what the fit did, as JSON values.
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
    report: dict[str, Any] = field(default_factory=dict)

    def outputs(
        self,
        images: Images,
        *,
        device: torch.device,
        batch_size: int,
        dtype: torch.dtype = torch.float32,
        progress: Progress = SILENT,
    ) -> Tensor:
        """f of every image, (N, C), on the CPU."""
        body, inputs = self._opened(images, device, batch_size, dtype)
        head, point, delta = (t.to(device=device, dtype=dtype) for t in (self.head, self.point, self.delta))
        if len(delta):
            body = FastLinearization(body, dtype, inputs.example(), recorded=False)
        out = torch.empty(len(inputs), len(head), dtype=dtype)
        with progress.stage("predicting", total=len(inputs), unit="images") as stage:
            for rows, x in inputs.batches():
                z, dz = body.jvp(x, delta) if len(delta) else (body.value(x), None)
                f = self.constant + with_one(z) @ head.T
                out[rows.cpu()] = (f if dz is None else f + dz @ point.T).cpu()
                stage.advance(len(rows))
        return average_views(out, images.n_views)

    def features(
        self,
        images: Images,
        *,
        device: torch.device,
        batch_size: int,
        dtype: torch.dtype = torch.float32,
        progress: Progress = SILENT,
    ) -> Tensor:
        """z of every image, (N, p), on the CPU: what the head sees, averaged over the image's views."""
        body, inputs = self._opened(images, device, batch_size, dtype)
        out = torch.empty(len(inputs), self.head.shape[1] - 1, dtype=dtype)
        with progress.stage("features", total=len(inputs), unit="images") as stage:
            for rows, x in inputs.batches():
                out[rows.cpu()] = body.value(x).cpu()
                stage.advance(len(rows))
        return average_views(out, images.n_views)

    def _opened(
        self, images: Images, device: torch.device, batch_size: int, dtype: torch.dtype
    ) -> tuple[Linearization, Inputs]:
        prefix, body = linearized_body(self.backbone.body.to(device=device, dtype=dtype), self.stage)
        inputs = Inputs(images, self.preprocess, device=device, dtype=dtype, batch_size=batch_size, prefix=prefix)
        return body, inputs
