"""Outputs of images that a change speaks about, as functions of a model's weights: f = f₀ + J δ, J δ and Jᵀu.

Outputs are written after one another, (N·C,), image by image, averaged over each image's views, in float64 on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.data import Images, with_views
from lqf.fitting import FittedModel, TrainingProblem
from lqf.linear import head_products
from lqf.linear.encoded import EncodedInputs
from lqf.linear.inputs import average_views
from lqf.runtime.precision import matmul_precision


@dataclass(frozen=True)
class Directions:
    """k vectors in the space of the weights.

    Attributes:
        head: (k, C, p+1) in float64.
        body: (k, D); D = 0 where the head is alone.
    """

    head: Tensor
    body: Tensor

    def __len__(self) -> int:
        return len(self.head)

    def plus(self, other: Directions, factor: float = 1.0) -> Directions:
        """The sum."""
        return Directions(self.head + factor * other.head, self.body + factor * other.body)

    def norms(self) -> Tensor:
        """(k,)."""
        return (self.head.square().sum((1, 2)) + self.body.double().square().sum(1)).sqrt()


@dataclass(frozen=True)
class Asked:
    """Images of several sources behind one another, with their features.

    Attributes:
        problem: the training problem of the model that is asked.
        parts: the images.
        head_alone: whether the body's weights stay as they are.
    """

    problem: TrainingProblem
    parts: tuple[EncodedInputs, ...]
    head_alone: bool

    @classmethod
    def of(cls, model: FittedModel, problem: TrainingProblem, images: Sequence[Images]) -> Asked:
        """In the views of the model's predictions."""
        parts = tuple(problem.encode(with_views(one, model.preprocess)) for one in images)
        return cls(problem, parts, model.head_alone)

    def outputs(self, at: Directions) -> Tensor:
        """f (N·C,) at the one vector ``at``."""
        model = self.problem.model
        base = [average_views(model.base(part.features).double(), part.inputs.n_views) for part in self.parts]
        return torch.cat(base).flatten().cpu() + self.jvp(at)[0]

    def jvp(self, x: Directions) -> Tensor:
        """J x_j (k, N·C)."""
        found = []
        for part in self.parts:
            out = head_products.jvp(part.features, x.head.flatten(0, 1))  # (rows, kC)
            out = out.unflatten(1, (len(x), -1))
            if not self.head_alone:
                out = out + self._body_jvp(part, x.body)
            found.append(average_views(out, part.inputs.n_views).transpose(0, 1).flatten(1))
        return torch.cat(found, 1).cpu()

    def vjp(self, u: Tensor) -> Directions:
        """Jᵀu_j for u (k, N·C)."""
        c, like, at, sums = self.problem.model.n_outputs, self.problem.quadratic.targets, 0, []
        for part in self.parts:
            v = part.inputs.n_views
            size = len(part.features) // v * c
            own = u[:, at : at + size].to(like.device).unflatten(1, (-1, c)).repeat_interleave(v, 1) / v
            head = head_products.vjp(own.transpose(0, 1).flatten(1), part.features).unflatten(0, (len(u), -1))
            body = like.new_zeros(len(u), 0)
            if not self.head_alone:
                with matmul_precision(fast=False):
                    body = part.body_vjp(self.problem.measured.model, own.to(like))
            sums.append(Directions(head, body))
            at += size
        return sums[0] if len(sums) == 1 else _sum(sums)

    def _body_jvp(self, part: EncodedInputs, body: Tensor) -> Tensor:
        """(rows, k, C) in float64."""
        model = self.problem.measured.model
        out = torch.zeros(len(part.features), len(body), model.n_outputs, dtype=torch.float64, device=body.device)
        with matmul_precision(fast=False):
            for rows, x in part.inputs.batches():
                for j, one in enumerate(body):
                    out[rows, j] = model.body_jvp(x, one).double()
        return out


def _sum(parts: list[Directions]) -> Directions:
    total = parts[0]
    for part in parts[1:]:
        total = total.plus(part)
    return total
