"""The training samples as rows of the quadratic problem: targets, weights, and who leaves together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lqf.data import Images
from lqf.fitting.select_ridge import Judge
from lqf.linear.targets import centre, encode


@dataclass
class Rows:
    """N samples in V views each: n = N·V rows.

    Attributes:
        images: the training images.
        alpha: scale of the targets.
        device: where the tensors live.
    """

    images: Images
    alpha: float
    device: torch.device

    @cached_property
    def labels(self) -> Tensor:
        """(N,)."""
        return torch.tensor(self.images.samples.labels)

    @cached_property
    def targets(self) -> Tensor:
        """(n, C) of the rows, float64."""
        t = encode(self.labels, len(self.images.samples.classes), self.alpha)
        return t.repeat_interleave(self.images.n_views, 0).to(self.device)

    @cached_property
    def weights(self) -> Tensor:
        """(n,) of the rows: the views of an image share its weight."""
        s = torch.tensor(self.images.samples.weights, dtype=torch.float64)
        return s.repeat_interleave(self.images.n_views).to(self.device) / self.images.n_views

    @cached_property
    def groups(self) -> Tensor:
        """(n,) rows that leave together: the views of an image, the images of a group."""
        names = self.images.samples.groups
        if names is None:
            code = torch.arange(len(self.images))
        else:
            number = {g: i for i, g in enumerate(dict.fromkeys(names))}
            code = torch.tensor([number[g] for g in names])
        return code.repeat_interleave(self.images.n_views)

    @cached_property
    def constant(self) -> float:
        """c of the linear model."""
        return centre(len(self.images.samples.classes), self.alpha)

    @cached_property
    def judge(self) -> Judge:
        """Compares candidates by leave-one-out."""
        weights = torch.tensor(self.images.samples.weights)
        return Judge(self.targets, self.labels, weights, self.images.n_views)
