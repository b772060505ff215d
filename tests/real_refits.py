"""Real refits by dense matrices, for the tests of fits and of the analysis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dense import normal_equations, optimum, ridge_regression, rows
from fits import brute_outputs
from lqf import LQFClassifier
from lqf.linear.model import with_one
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.linear.targets import encode
from problems import features


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
        return brute_outputs(self.problem, self.solution(factors, labels), self._inputs)

    def residuals(self, factors: Tensor | None = None) -> Tensor:
        """r − Jδ (n, C) of all training rows after a fit with the samples' weights multiplied."""
        j, r, _ = rows(self.problem)
        return r - j @ self.solution(factors)

    def solution(self, factors: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """δ* of head and body, or of the head alone where the model has no more, from the normal equations."""
        problem, weights = self.problem, self.problem.weights
        if factors is not None:
            weights = weights * factors.repeat_interleave(self.n_views)
        if labels is not None:
            fitted = self.analysis.model
            targets = encode(labels, len(fitted.classes), fitted.alpha).repeat_interleave(self.n_views, 0)
            problem = replace(problem, targets=targets.to(problem.targets))
        h, b = normal_equations(problem, weights)
        if not self.alone:
            return torch.linalg.solve(h, b)
        k = problem.model.head_size
        return torch.cat([torch.linalg.solve(h[:k, :k], b[:k]), problem.zero_body()])

    def without(self, samples: list[int]) -> Tensor:
        """f after a fit without some samples."""
        return self.outputs(self.all_but(samples))

    def all_but(self, samples: list[int]) -> Tensor:
        """(N,) factors of the samples' weights: 0 for some, 1 for the others."""
        factors = torch.ones(len(self.analysis.ids), dtype=torch.float64)
        factors[samples] = 0
        return factors


def without_each_fold(p: QuadraticProblem, fold: Tensor, mu: float, strengths: tuple[float, ...] = ()) -> Tensor:
    """(n, C) outputs of every row from the optimum without its fold, all made anew: around heads that are cross-fitted
    among the other folds with the strength ``mu`` for all rows, under the strengths of the head that are given.
    """
    out = torch.zeros_like(p.targets)
    for k in range(int(fold.max()) + 1):
        keep = (fold != k).nonzero()[:, 0]
        heads, own = crossfitted_heads(p, fold, k, mu)
        ridge = Ridge(strengths[k], p.ridge.body) if strengths else p.ridge
        part = replace(p, model=replace(p.model, heads=heads), fold=own, ridge=ridge)
        left_out = (fold == k).nonzero()[:, 0]
        out[left_out] = brute_outputs(part, optimum(part, keep), p.inputs.fetch(left_out))
    return out


def crossfitted_heads(p: QuadraticProblem, fold: Tensor, k: int, mu: float) -> tuple[Tensor, Tensor]:
    """One head for each of the folds but ``k``, of the rows in all others; μ in proportion to their weight."""
    z, r, s = with_one(features(p)), p.targets - p.model.constant, p.weights
    others, heads, own = [j for j in fold.unique().tolist() if j != k], [], torch.zeros_like(p.fold)
    for place, j in enumerate(others):
        some, own[fold == j] = (fold != k) & (fold != j if len(others) > 1 else True), place
        share = float(s[some].sum() / s[fold != k].sum())
        heads.append(ridge_regression(z[some], r[some], s[some], mu * share).T)
    return torch.stack(heads), own
