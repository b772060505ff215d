"""Models made ready on a device: what a pass needs is made once, also where the images come in parts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lqf.data import Images, with_views
from lqf.errors import LQFError
from lqf.fast.directional import Directional, directional
from lqf.linear import sweep
from lqf.linear.inputs import Inputs, average_views
from lqf.linear.linearize import linearized_body
from lqf.linear.model import with_one
from lqf.utils.progress import SILENT, Progress

if TYPE_CHECKING:
    from lqf.fitting.fitted_model import FittedModel
    from lqf.fitting.stack import Stack

CPU = torch.device("cpu")


class ReadyModel:
    """f(x) = c + V z̃(x) + W̄ J_z(x) δ_body, averaged over the image's views, on one device.

    Args:
        model: whose outputs are wanted.
        device: where.
        batch_size: rows at a time.
        images: how many will come in all; their outputs do not depend on how they are cut into parts.
    """

    def __init__(self, model: FittedModel, device: torch.device, batch_size: int, images: int):
        self.model, self.device, self.batch_size = model, device, batch_size
        self.rows = images * model.preprocess.n_views
        self.dtype = model.settings.torch_dtype
        body = model.backbone.body.to(device=device, dtype=self.dtype)
        self.prefix, self.body = linearized_body(body, model.stage)
        tensors = (model.head, model.point, model.delta)
        self.head, self.point, self.delta = (t.to(device=device, dtype=self.dtype) for t in tensors)
        self._along: Directional | None = None

    @property
    def samples(self) -> int:
        """Parts of a multiple of so many samples are passed through the network in the same batches as all samples
        together, and so to the same bits.
        """
        return max(1, self.batch_size // self.model.preprocess.n_views)

    def outputs(self, images: Images, progress: Progress = SILENT) -> Tensor:
        """f of every image, (N, C), on the CPU."""
        inputs = self.inputs(images)
        along = None if self.model.head_alone else self._passes(inputs)

        def apply(_: Tensor, x: Tensor) -> Tensor:
            z, dz = (self.body.value(x), None) if along is None else along(x)
            f = self.model.constant + with_one(z) @ self.head.T
            return f if dz is None else f + dz @ self.point.T

        stage = ("predicting", len(inputs))
        rows = sweep.sweep(inputs.batches(), len(inputs), apply, progress=progress, stage=stage, collect=CPU)
        return average_views(rows, images.n_views)

    def _passes(self, inputs: Inputs) -> Directional:
        if self._along is None:
            if self.body.size != len(self.delta):
                raise LQFError(
                    f"the model changes {len(self.delta):,} weights of its network, and there are {self.body.size:,} "
                    f"from `{self.model.stage}` on; fit again"
                )
            self._along = directional(self.body, self.delta, inputs.example(), self.rows)
        return self._along

    def inputs(self, images: Images) -> Inputs:
        """The images on their way to the network."""
        return Inputs(
            images,
            self.model.preprocess,
            device=self.device,
            dtype=self.dtype,
            batch_size=self.batch_size,
            prefix=self.prefix,
        )


class ReadyStack:
    """f = Σ w_k f_k over the members."""

    def __init__(self, stack: Stack, device: torch.device, batch_size: int, images: int):
        self.weights = stack.weights
        self.members = [ReadyModel(m, device, batch_size, images) for m in stack.members]

    @property
    def samples(self) -> int:
        """Likewise, of all members."""
        return math.lcm(*(m.samples for m in self.members))

    def outputs(self, images: Images, progress: Progress = SILENT) -> Tensor:
        """f of every image, (N, C), on the CPU."""
        parts = [
            w * m.outputs(with_views(images, m.model.preprocess), progress)
            for w, m in zip(self.weights, self.members, strict=True)
        ]
        return torch.stack(parts).sum(0)
