"""The first stages of a fit: rows, features, closed-form head; pooling and views by it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from lqf.backbones import Backbone
from lqf.backbones.average_pool import AveragePool, find_average_pool
from lqf.backbones.bilinear_pool import ChannelMoment
from lqf.data import Images, Preprocess, with_views
from lqf.data.preprocess import Views
from lqf.fast.engine import Engine
from lqf.fitting import choices
from lqf.fitting.checkpoint import Checkpoint
from lqf.fitting.ridges import fixed_mu
from lqf.fitting.select_pooling import OWN, Pooled, best, candidates, try_poolings
from lqf.fitting.select_ridge import Choice, choose_ridge
from lqf.fitting.select_views import interleaved
from lqf.fitting.training_set import Rows
from lqf.linear.batch import rows_that_fit
from lqf.linear.inputs import Inputs
from lqf.linear.linearize import Linearization, linearized_body
from lqf.runtime.distributed import ALONE, World
from lqf.runtime.memory import available_bytes
from lqf.runtime.precision import matmul_precision
from lqf.settings import Settings
from lqf.solvers import Head
from lqf.utils.progress import SILENT, Progress

MAPS = 8
"""The last feature maps of all rows are kept between poolings where they take so small a part of the free memory."""


@dataclass
class Featured:
    """One fit: its data, its settings, and the stages up to the closed-form head as methods.

    Attributes:
        settings: what to do.
        backbone: the network, on the CPU.
        images: training images, checked.
        preprocess: pixels to inputs.
        device: where to compute.
        checkpoint: where to keep what a solve has reached; None: nowhere.
        resume: start from the checkpoint if there is one.
        progress: where to report.
        world: the processes that share the images.
    """

    settings: Settings
    backbone: Backbone
    images: Images
    preprocess: Preprocess
    device: torch.device
    checkpoint: Checkpoint | None = None
    resume: bool = False
    progress: Progress = SILENT
    world: World = ALONE
    pooling: str = OWN
    seconds: dict[str, float] = field(default_factory=dict)
    choices: list[dict[str, Any]] = field(default_factory=list)

    # --- the data as rows ---------------------------------------------------------------------------------------------

    @cached_property
    def dtype(self) -> torch.dtype:
        """Floating-point type of all passes."""
        return torch.float64 if self.settings.dtype == "float64" else torch.float32

    @cached_property
    def inputs(self) -> Inputs:
        """Rows on the device; the frozen prefix's activations are kept when they fit."""
        inputs = self._inputs(self.images, self.preprocess)
        if self.device.type == "cuda" and self.settings.batch_size is None:
            free = available_bytes(self.device)
            inputs.batch_size = rows_that_fit(self._parts[1], inputs.example(1), free)
        inputs.cache_prefix(progress=self.progress)
        inputs.keep_on_device()
        return inputs

    def _inputs(self, images: Images, preprocess: Preprocess) -> Inputs:
        return Inputs(
            images,
            preprocess,
            device=self.device,
            dtype=self.dtype,
            batch_size=self.settings.batch_size or 16,
            prefix=self._parts[0],
            world=self.world,
        )

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        return linearized_body(self.backbone.body.to(device=self.device, dtype=self.dtype), self.settings.linearize)

    @cached_property
    def rows(self) -> Rows:
        """Targets, weights and groups of the rows."""
        return Rows(self.images, self.settings.alpha, self.device)

    # --- the stages ---------------------------------------------------------------------------------------------------

    def pool(self) -> Pooled:
        """Features and closed-form head under the pooling that is kept, which from here on is the backbone's."""
        s, module, cuda = self.settings, self._parts[1].module, self.device.type == "cuda"
        found = self.world.first(lambda: (p := find_average_pool(module, self.inputs.example())) and asdict(p))
        wanted = candidates(
            s.pooling,
            AveragePool(**found) if found else None,
            s.pool_channels,
            self.backbone.name,
            len(self.inputs),
            self.dtype.itemsize,
            min(self.world.every(self._memory())) // 2,
            cuda,
        )
        if wanted.note:
            self.progress.say(wanted.note)
        tried = try_poolings(
            replace(wanted, linearised=s.linearize_reduction),
            self.backbone,
            self._reader,
            self._features_of,
            self._features_from,
            self._judged,
            self.world,
            self._memory() // MAPS,
        )
        kept = best(tried, self.world)
        self._use(kept.backbone)
        self.pooling = kept.name
        self.choices += choices.of_pooling(tried, kept)
        return kept

    def mirrored(self, plain: Pooled) -> Pooled:
        """The same with the images' mirror images as second views; `show` puts them to use."""
        flipped = replace(self.preprocess, views="flip")
        images = with_views(self.images, flipped)
        with self._timed("features"):
            z = interleaved(plain.features, self._of_view(1, images, flipped))
        head, choice = self._judged(z, Rows(images, self.settings.alpha, self.device))
        return replace(plain, features=z, head=head, choice=choice)

    def show(self, views: Views) -> None:
        """Other views of the images, from here on."""
        self.preprocess = replace(self.preprocess, views=views)
        self.images = with_views(self.images, self.preprocess)
        for made in ("inputs", "rows", "_folds", "engine"):
            self.__dict__.pop(made, None)

    def _of_view(self, view: int, images: Images, preprocess: Preprocess) -> Tensor:
        """z (N, p) of one view alone."""
        inputs = self._inputs(images, preprocess)
        inputs.batch_size, out = self.inputs.batch_size, None
        with self.progress.stage("mirrored features", total=len(inputs.own), unit="images") as stage:
            for index in inputs.own.split(inputs.batch_size):
                with matmul_precision(fast=False):
                    z = self._reader.value(inputs.fetch(index * preprocess.n_views + view))
                out = z.new_zeros(len(images), z.shape[1]) if out is None else out
                out[index.to(self.device)] = z
                stage.advance(len(index))
        assert out is not None
        return self.world.sum_(out)

    def _features_of(self, backbone: Backbone, moment: ChannelMoment | None) -> Tensor:
        self._use(backbone)
        with self._timed("features"):
            return self.features(moment)

    def _features_from(self, backbone: Backbone, pool: nn.Module, maps: list[Tensor]) -> Tensor:
        """z (n, p) of all rows from their maps: under average pooling nothing follows it."""
        self._use(backbone)
        with self._timed("features"), torch.no_grad(), matmul_precision(fast=False):
            out = torch.zeros(len(self.inputs), backbone.features, dtype=self.dtype, device=self.device)
            for rows, x in zip(self.inputs.batch_rows(), maps, strict=True):
                out[rows.to(self.device)] = pool.to(self.device)(x).to(self.dtype)
            return self.world.sum_(out)

    def _judged(self, features: Tensor, rows: Rows | None = None) -> tuple[Head, Choice]:
        rows = rows or self.rows
        with self._timed("head"):
            head = self.closed_form_head(features, rows)
            fixed = fixed_mu(self.settings, float(rows.weights.sum()))
            return head, choose_ridge(lambda _: head.ridge, head.residual, rows.judge, [1.0], fixed)

    def _use(self, backbone: Backbone) -> None:
        """Another pooling; what comes before it, and so the rows' inputs, stays the same."""
        if backbone is not self.backbone:
            self.backbone = backbone
            for made in ("_parts", "_reader", "engine"):
                self.__dict__.pop(made, None)

    @cached_property
    def _reader(self) -> Linearization:
        """The body as features are computed by: on a GPU with its layers merged, in the same floating-point type."""
        return self.engine.exact if self.device.type == "cuda" else self._parts[1]

    @cached_property
    def engine(self) -> Engine:
        """Faster passes."""
        return Engine(self._parts[1], self.settings, self.inputs.example(), self.progress.say)

    def features(self, moment: ChannelMoment | None = None) -> Tensor:
        """z (n, p) of all rows; the moment, if there is one, is added up on the way, over the central views."""
        out = None
        total = len(self.inputs.own) * self.images.n_views
        with self.progress.stage("features", total=total, unit="images") as stage:
            for rows, x in self.inputs.batches():
                with matmul_precision(fast=False):
                    z = self._reader.value(x)
                out = z.new_zeros(len(self.inputs), z.shape[1]) if out is None else out
                out[rows] = z
                if moment is not None:
                    moment.add(self.rows.weights[rows] * (rows % self.images.n_views == 0))
                stage.advance(len(rows))
        assert out is not None
        return self.world.sum_(out)

    def closed_form_head(self, features: Tensor, rows: Rows | None = None) -> Head:
        """The factorised head problem of the rows."""
        rows = rows or self.rows
        return Head.of(features, rows.targets - rows.constant, rows.weights, rows.groups.to(self.device))

    # --- small things -------------------------------------------------------------------------------------------------

    def _memory(self) -> int:
        """Free bytes on the device; processes on one machine share its main memory."""
        free = available_bytes(self.device)
        return free if self.device.type == "cuda" else free // self.world.local_size

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
