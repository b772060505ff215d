"""The linear model under two kinds of features by dense matrices: the network's weights act through the first alone.

    f = c + V_a z̃_a + V_b z_b + W̄ J_a δ,      z_a: the network's own features, z_b: others, scaled.

Of a fitted model only its strengths and the features that its network makes are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dense import jacobian, ridge_regression
from fits import kind
from lqf import LQFClassifier
from lqf.backbones import Backbone
from lqf.data import load_samples, normalize, open_images
from lqf.fitting.folds import stratified_folds
from lqf.linear.linearize import Linearization
from lqf.linear.model import with_one
from lqf.linear.targets import centre, encode


@dataclass(frozen=True, eq=False)
class TwoKinds:
    """The problem that a model solves, and its solution.

    Attributes:
        model: fitted, in float64, with cross-fitted heads at the point.
        own: the network with its own features, in float64.
        x: pictures (N, …).
        y: labels (N,).
        stages: beginnings of the names of the weights that may change; none: all.
    """

    model: LQFClassifier
    own: Backbone
    x: np.ndarray
    y: np.ndarray
    stages: tuple[str, ...] = ("",)

    def outputs(self, new: np.ndarray) -> Tensor:
        """f of new pictures, through the mean of the heads."""
        z, j = self._features(new), self._jacobian(new)
        heads = self.heads.mean(0).expand(len(z), -1, -1)
        return self._mean(self._constant + self._rows(z, j, heads) @ self.solution())

    def left_out(self, samples: int) -> Tensor:
        """f of each of the first samples by the optimum without it, around the same point."""
        without = [self.solution(self.of_row != i) for i in range(samples)]
        return torch.stack([self._mean(self._constant + self.rows @ delta)[i] for i, delta in enumerate(without)])

    def solution(self, keep: Tensor | None = None) -> Tensor:
        """δ* from the normal equations of all rows, or of those in a mask."""
        keep = torch.ones_like(self.of_row, dtype=torch.bool) if keep is None else keep
        a, r, s = self.rows[keep].flatten(0, 1), self.residual[keep].flatten(), self._weight
        ridge = self.model.fitted_.report.ridge
        strengths = [ridge.head] * self.residual.shape[1] * (self.features.shape[1] + 1)
        for name, size in self._weights:
            own = [(len(stage), mu) for stage, mu in ridge.stages if name.startswith(f"{stage}.")]
            strengths += [max(own)[1] if own else ridge.body] * size
        h = s * a.T @ a + torch.diag(torch.tensor(strengths, dtype=torch.float64))
        return torch.linalg.solve(h, s * a.T @ r)

    @cached_property
    def heads(self) -> Tensor:
        """(K, C, q+1) of the own features, one without each fold."""
        z, mu, heads = with_one(self._own_features(self.x)), self.model.report_["point_ridge"], []
        weights = torch.full((len(z),), self._weight, dtype=torch.float64)
        for k in range(int(self.fold.max()) + 1):
            keep = self.fold != k
            share = float(keep.double().mean())
            heads.append(ridge_regression(z[keep], self.residual[keep], weights[keep], mu * share).T)
        return torch.stack(heads)

    @cached_property
    def rows(self) -> Tensor:
        """(n, C, size) of head and network."""
        return self._rows(self.features, self._jacobian(self.x), self.heads[self.fold])

    @cached_property
    def features(self) -> Tensor:
        """(n, p) of both kinds."""
        return self._features(self.x)

    @cached_property
    def residual(self) -> Tensor:
        """(n, C)."""
        labels = torch.tensor(self.y)[self.of_row]
        return encode(labels, len(self.model.classes_), self.model.alpha) - self._constant

    @cached_property
    def of_row(self) -> Tensor:
        """(n,) sample of every row."""
        return torch.arange(len(self.x)).repeat_interleave(self._views)

    @cached_property
    def fold(self) -> Tensor:
        """(n,)."""
        return stratified_folds(self.of_row, torch.tensor(self.y)[self.of_row], seed=self.model.seed)

    @property
    def _views(self) -> int:
        return self.model.fitted_.preprocess.n_views

    @property
    def _weight(self) -> float:
        return 1 / self._views

    @property
    def _constant(self) -> float:
        return centre(len(self.model.classes_), self.model.alpha)

    @cached_property
    def _body(self) -> Linearization:
        return Linearization(self.own.body.double())

    @cached_property
    def _weights(self) -> list[tuple[str, int]]:
        layout = self._body.layout
        return [(n, s) for n, s in zip(layout.names, layout.sizes, strict=True) if n.startswith(self.stages)]

    def _inputs(self, x: np.ndarray) -> Tensor:
        preprocess: Any = self.model.fitted_.preprocess
        images = open_images(load_samples(x, tensors=kind(x)), preprocess)
        views = [normalize(images.batch(range(len(x)), v), preprocess, torch.float64) for v in range(self._views)]
        return torch.stack(views, 1).flatten(0, 1)

    def _own_features(self, x: np.ndarray) -> Tensor:
        return self._body.value(self._inputs(x))

    def _features(self, x: np.ndarray) -> Tensor:
        """Of both kinds: the first are the network's own."""
        own = self._own_features(x)
        z = self.model.fitted_.backbone.body.double()(self._inputs(x))
        torch.testing.assert_close(z[:, : own.shape[1]], own, rtol=1e-9, atol=1e-9)
        assert z.shape[1] > own.shape[1]
        return z

    def _jacobian(self, x: np.ndarray) -> Tensor:
        """(n, q, D) of the own features."""
        layout = self._body.layout
        own = torch.tensor([name.startswith(self.stages) for name in layout.names])
        return jacobian(self._body, self._inputs(x))[..., own.repeat_interleave(torch.tensor(layout.sizes))]

    def _rows(self, z: Tensor, j: Tensor, heads: Tensor) -> Tensor:
        head = torch.einsum("np,cd->ncdp", with_one(z), torch.eye(heads.shape[1]).double()).flatten(2)
        return torch.cat([head, heads[..., :-1] @ j], -1)

    def _mean(self, rows: Tensor) -> Tensor:
        return rows.unflatten(0, (-1, self._views)).mean(1)
