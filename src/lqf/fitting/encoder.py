"""A backbone at work on a training set: its rows on the device, its features, and faster passes through it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from lqf.backbones import Backbone
from lqf.backbones.bilinear_pool import ChannelMoment, principal_rows
from lqf.data.unread import UnreadImages
from lqf.fast.engine import Engine
from lqf.fitting.context import Context
from lqf.fitting.training_set import TrainingSet
from lqf.linear.batch import CPU_ROWS, in_fitting_batches
from lqf.linear.inputs import Inputs
from lqf.linear.linearize import Linearization, linearized_body
from lqf.linear.sweep import sweep
from lqf.runtime.precision import matmul_precision


@dataclass(frozen=True, eq=False)
class Encoder:
    """Images -> features z, by a backbone that is linearised from a stage on.

    Attributes:
        data: the training set.
        backbone: the network, on the CPU or on the device.
        shared: the rows of an encoder with the same frozen prefix and the same images; None: made when they are needed.
        recorded: faster passes of an encoder with the same network; None likewise.
    """

    data: TrainingSet
    backbone: Backbone
    shared: Inputs | None = None
    recorded: Engine | None = None

    @property
    def context(self) -> Context:
        """Of the fit."""
        return self.data.context

    def with_backbone(self, backbone: Backbone) -> Encoder:
        """A network that differs from the linearised stage on alone: another pooling, or moved weights there."""
        return self if backbone is self.backbone else Encoder(self.data, backbone, self.inputs)

    def in_views(self, data: TrainingSet) -> Encoder:
        """The same network with the same images in other views; what is known of the old ones is kept."""
        if data is self.data:
            return self
        shared = self.inputs.in_views(data.images, data.preprocess, self.context.progress)
        return Encoder(data, self.backbone, shared, self.engine)

    @cached_property
    def _parts(self) -> tuple[nn.Module | None, Linearization]:
        body = self.backbone.body.to(device=self.context.device, dtype=self.context.dtype)
        return linearized_body(body, self.context.settings.linearize)

    @property
    def body(self) -> Linearization:
        """The linearised part."""
        return self._parts[1]

    @cached_property
    def inputs(self) -> Inputs:
        """Rows on the device; the frozen prefix's activations are kept when they fit (those of images whose pixels
        nobody has asked for yet, from `prepare` on).
        """
        if self.shared is not None:
            return self.shared
        context, given = self.context, self.context.settings.batch_size
        inputs = Inputs(
            self.data.images,
            self.data.preprocess,
            device=context.device,
            dtype=context.dtype,
            batch_size=given or CPU_ROWS,
            prefix=self._parts[0],
            world=context.world,
            tick=context.tick,
        )
        if given is None:
            inputs = in_fitting_batches(inputs, self.body)
        if not isinstance(self.data.images, UnreadImages):
            inputs.keep(context.progress)
        return inputs

    def prepare(self) -> None:
        """Before passes over rows whose pixels were not asked for so far: they are decoded once, not in every pass."""
        if isinstance(self.data.images, UnreadImages):
            self.data.images.pixels.store()
            self.inputs.keep(self.context.progress)

    def whole_example(self) -> Tensor:
        """A few rows as the whole network takes them, whatever part of it is linearised."""
        data, context = self.data, self.context
        return Inputs(data.images, data.preprocess, device=context.device, dtype=context.dtype, batch_size=2).example()

    @cached_property
    def engine(self) -> Engine:
        """Faster passes."""
        if self.recorded is not None:
            return self.recorded
        return Engine(self.body, self.context.settings, self.inputs.example(), self.context.progress.say)

    @property
    def reader(self) -> Linearization:
        """The body as features are computed by: on a GPU with its layers merged, in the same floating-point type."""
        return self.engine.exact if self.context.device.type == "cuda" else self.body

    # --- features -----------------------------------------------------------------------------------------------------

    def features(self, moment: ChannelMoment | None = None) -> Tensor:
        """z (n, p) of all rows; the moment, if there is one, is added up on the way, over the central views."""

        def encode(rows: Tensor, x: Tensor) -> Tensor:
            z = self.reader.value(x)
            if moment is not None:
                moment.add(self.data.weights[rows] * (rows % self.data.n_views == 0))
            return z

        context, inputs = self.context, self.inputs
        with context.timed("features"):
            return sweep(
                inputs.batches(),
                len(inputs),
                encode,
                world=context.world,
                progress=context.progress,
                stage=("features", inputs.own_rows),
            )

    def features_from(self, pool: nn.Module, maps: list[Tensor]) -> Tensor:
        """The same from the last feature maps of the batches, in order: nothing follows the pooling."""
        context, inputs = self.context, self.inputs
        with context.timed("features"), torch.no_grad(), matmul_precision(fast=False):
            out = torch.zeros(len(inputs), self.backbone.features, dtype=context.dtype, device=context.device)
            pool = pool.to(device=context.device, dtype=context.dtype)
            for rows, x in zip(inputs.batch_rows(), maps, strict=True):
                out[rows.to(context.device)] = pool(x).to(context.dtype)
            return context.world.all_reduce_(out)

    def reduction(self, moment: ChannelMoment, channels: int, k: int) -> Tensor:
        """(k, c) leading principal channels, the same on every process, one of which may have no rows."""
        world, total = self.context.world, moment.sum
        if total is None:
            total = torch.zeros(channels, channels, dtype=torch.float64, device=self.context.device)
        return world.broadcast_(principal_rows(world.all_reduce_(total), k).contiguous())

    def features_of_view(self, view: int) -> Tensor:
        """z (N, p) of one view alone."""
        context, inputs = self.context, self.inputs
        with context.timed("features"):
            return sweep(
                inputs.batches_of_view(view),
                len(self.data),
                lambda _, x: self.reader.value(x),
                world=context.world,
                progress=context.progress,
                stage=(f"features of view {view + 1}", len(inputs.own)),
            )
