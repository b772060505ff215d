"""Images with their features: rows whose outputs are asked about."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.linear.inputs import Inputs
from lqf.linear.model import LinearModel


@dataclass(frozen=True)
class EncodedInputs:
    """Rows of a network, and what it makes of them.

    Attributes:
        inputs: the rows.
        features: (rows, p) z of each.
        fold: (rows,) which head of the linear model each row uses; None: the mean of all.
    """

    inputs: Inputs
    features: Tensor
    fold: Tensor | None = None

    def every_output(self, n_outputs: int) -> Tensor:
        """(images·C, rows, C) weights of the sums that are the outputs of the images, averaged over their views."""
        c, v, n = n_outputs, self.inputs.n_views, len(self.features)
        u = torch.zeros(n // v * c, n, c, dtype=torch.float64, device=self.features.device)
        for k in range(len(u)):
            u[k, k // c * v : (k // c + 1) * v, k % c] = 1 / v
        return u

    def sums(self, weights: Tensor) -> Tensor:
        """(images, rows, C) weights of one sum of outputs for every image (images, C), averaged over its views."""
        v = self.inputs.n_views
        every = torch.eye(len(weights), dtype=torch.float64).repeat_interleave(v, 1) / v  # (images, rows)
        return (every[:, :, None] * weights.double().cpu()[:, None]).to(self.features.device)

    def body_vjp(self, model: LinearModel, u: Tensor) -> Tensor:
        """J_body(x)ᵀu (k, D) of sums of the outputs with weights u (k, rows, C), only through rows that have weight, on
        the processes that deliver them.
        """
        out = u.new_zeros(len(u), model.body.size)
        for k, one in enumerate(u):
            counted = self.inputs.among_own((one != 0).any(1).nonzero()[:, 0])
            for rows in counted.split(self.inputs.batch_size) if len(counted) else ():
                fold = None if self.fold is None else self.fold[rows]
                out[k] += model.body_vjp(self.inputs.fetch(rows), one[rows], fold)
        return self.inputs.world.all_reduce_(out)

    def body_jvp(self, model: LinearModel, v: Tensor, image: Tensor) -> Tensor:
        """J_body(x)v (C,) of one image, averaged over its views."""
        n = self.inputs.n_views
        rows = int(image) * n + torch.arange(n, device=self.features.device)
        fold = None if self.fold is None else self.fold[rows]
        return model.body_jvp(self.inputs.fetch(rows), v, fold).mean(0)
