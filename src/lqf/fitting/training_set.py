"""The training samples as rows of the quadratic problem: targets, weights, folds, and who leaves together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from lqf.data import Images, Preprocess, select_images, with_views
from lqf.evaluation.balance import judging_weights
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.fitting.context import Context
from lqf.fitting.folds import stratified_folds
from lqf.fitting.select_ridge import Judge
from lqf.linear.targets import centre, encode
from lqf.utils.exactness import Level


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """N samples in V views each: n = N·V rows.

    Attributes:
        images: the training images.
        preprocess: pixels to inputs, and the views.
        context: of the fit.
    """

    images: Images
    preprocess: Preprocess
    context: Context

    @classmethod
    def of(cls, images: Images, preprocess: Preprocess, context: Context) -> TrainingSet:
        """In the views that the settings name, whatever views the images were opened in."""
        data, views = cls(images, preprocess, context), context.settings.views
        return data if views in ("auto", preprocess.views) else data.with_views(views)

    def with_views(self, views: str) -> TrainingSet:
        """The same images in other views."""
        preprocess = replace(self.preprocess, views=views)
        return replace(self, images=with_views(self.images, preprocess), preprocess=preprocess)

    def some(self, chosen: np.ndarray) -> TrainingSet:
        """Some of the samples (a mask); the classes stay."""
        return replace(self, images=select_images(self.images, chosen))

    def __len__(self) -> int:
        return len(self.images)

    @property
    def n_views(self) -> int:
        """V."""
        return self.images.n_views

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.images.samples.classes

    @cached_property
    def labels(self) -> Tensor:
        """(N,) numbers of the classes."""
        return torch.tensor(self.images.samples.labels)

    @cached_property
    def targets(self) -> Tensor:
        """(n, C) of the rows, float64."""
        t = encode(self.labels, len(self.classes), self.context.settings.alpha)
        return t.repeat_interleave(self.n_views, 0).to(self.context.device)

    @cached_property
    def sample_weights(self) -> Tensor:
        """(N,) s_i, float64; those of the classes are in them."""
        return torch.tensor(self.images.samples.weights)

    @cached_property
    def weights(self) -> Tensor:
        """(n,) of the rows, float64: the views of an image share its weight."""
        return self.sample_weights.repeat_interleave(self.n_views).to(self.context.device) / self.n_views

    @cached_property
    def total_weight(self) -> float:
        """Σs: a weight decay per sample λ is a ridge strength μ = λ·Σs."""
        return float(self.weights.sum())

    @cached_property
    def groups(self) -> Tensor:
        """(n,) rows that leave together: the views of an image, the images of a group."""
        names = self.images.samples.groups
        if names is None:
            code = torch.arange(len(self))
        else:
            number = {g: i for i, g in enumerate(dict.fromkeys(names))}
            code = torch.tensor([number[g] for g in names])
        return code.repeat_interleave(self.n_views)

    @cached_property
    def folds(self) -> Tensor:
        """(n,) fold of every row; the same for every rung of a fit."""
        labels = self.labels.repeat_interleave(self.n_views)
        return stratified_folds(self.groups, labels, seed=self.context.settings.seed)

    @cached_property
    def constant(self) -> float:
        """c of the linear model."""
        return centre(len(self.classes), self.context.settings.alpha)

    @cached_property
    def single(self) -> Tensor:
        """(N,) samples whose class has no other group: left out, they are of a class that was never seen."""
        groups = self.groups[:: self.n_views]
        pairs = torch.unique(torch.stack([self.labels, groups], 1), dim=0)
        return torch.bincount(pairs[:, 0], minlength=len(self.classes))[self.labels] < 2

    @property
    def alone(self) -> bool:
        """Whether all samples are `single`, so that leaving some out says nothing and every strength is a prior."""
        return bool(self.single.all())

    @cached_property
    def known_weights(self) -> Tensor:
        """(N,) s_i of the samples about which leaving out says something, else zero."""
        return self.sample_weights if self.alone else torch.where(self.single, 0.0, self.sample_weights)

    @cached_property
    def judging(self) -> Tensor:
        """(N,) by which everything that is chosen out of sample is judged; the objective knows nothing of them."""
        return judging_weights(self.context.settings.choose_by, self.known_weights, self.labels)

    @cached_property
    def judge(self) -> Judge:
        """Compares candidates by leave-one-out of the samples that it says something about."""
        return Judge(self.targets, self.labels, self.judging, self.n_views, self.alone, self.known_weights)

    def left_out(self, outputs: Tensor, level: Level, note: str = "") -> LeaveOneOut:
        """Out-of-sample outputs (N, C) of the samples, with how exact they are; of those that are `single`, nothing is
        known.
        """
        if not self.alone:
            outputs = outputs.cpu().masked_fill(self.single[:, None], torch.nan)
        by = self.context.settings.choose_by
        return LeaveOneOut(outputs.cpu(), level, note, labels=self.labels, weights=self.sample_weights, choose_by=by)
