"""Real refits by dense matrices, for the tests of the analysis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dense import ridge_matrix, rows
from fits import brute_outputs
from lqf import LQFClassifier
from lqf.linear.problem import QuadraticProblem
from lqf.linear.targets import encode


def solve(problem: QuadraticProblem, weights: Tensor | None = None, targets: Tensor | None = None) -> Tensor:
    """δ* from the normal equations with other row weights (0: absent) or targets; head and body, or the head alone."""
    if targets is not None:
        problem = replace(problem, targets=targets.to(problem.targets))
    j, r, s = rows(problem)
    s = s if weights is None else weights
    flat, w = j.flatten(0, 1), s.repeat_interleave(j.shape[1])
    h = flat.T @ (w[:, None] * flat) + torch.diag(ridge_matrix(problem))
    return torch.linalg.solve(h, flat.T @ (w * r.flatten()))


class Refitted:
    """The problem of a fitted model, solved again and again by dense matrices, the point held fixed."""

    def __init__(self, model: LQFClassifier, train: Any, test: Tensor):
        self.analysis = model.analyse(train)
        training = self.analysis.problem
        self.problem, self.n_views = training.quadratic, training.data.n_views
        prefix = training.encoder.inputs.prefix
        self.test = test
        self._inputs = test if prefix is None else prefix(test).detach()
        self.alone = self.analysis.model.head_alone

    def outputs(self, factors: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """f of the test tensors after a fit with the samples' weights multiplied and other labels."""
        weights = self.problem.weights.clone()
        if factors is not None:
            weights *= factors.repeat_interleave(self.n_views)
        targets = None
        if labels is not None:
            fitted = self.analysis.model
            targets = encode(labels, len(fitted.classes), fitted.alpha)
            targets = targets.repeat_interleave(self.n_views, 0)
        delta = self._solve(weights, targets)
        return brute_outputs(self.problem, delta, self._inputs)

    def _solve(self, weights: Tensor, targets: Tensor | None) -> Tensor:
        if not self.alone:
            return solve(self.problem, weights, targets)
        problem = self.problem if targets is None else replace(self.problem, targets=targets)
        j, r, _ = rows(problem)
        flat, w = j[..., : problem.model.head_size].flatten(0, 1), weights.repeat_interleave(j.shape[1])
        h = flat.T @ (w[:, None] * flat) + problem.ridge.head * torch.eye(flat.shape[1], dtype=flat.dtype)
        head = torch.linalg.solve(h, flat.T @ (w * r.flatten()))
        return torch.cat([head, problem.zero_body()])

    def without(self, samples: list[int]) -> Tensor:
        """f after a fit without some samples."""
        n = len(self.analysis.ids)
        factors = torch.ones(n, dtype=torch.float64)
        factors[samples] = 0
        return self.outputs(factors)


def relative(a: Tensor, b: Tensor) -> float:
    """Largest difference in units of the largest entry of b."""
    return float((a - b).abs().max() / b.abs().max())
