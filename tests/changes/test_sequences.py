"""Adding and forgetting: each time the optimum of what there is then, at the point and the strengths of the fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dense import normal_equations
from fits import brute_outputs, classifier, data
from lqf import LQFClassifier
from lqf.data import load_samples, open_images
from lqf.fitting import Context
from lqf.fitting.reopen import reopen
from lqf.linear.problem import QuadraticProblem

N, CLASSES = 24, 3
FITS: dict[str, dict[str, Any]] = {
    "head": {"solver": "head"},
    "dense": {"solver": "dense"},
    "dense, around w0": {"solver": "dense", "form": "w0"},
    "dense, one point": {"solver": "dense", "head": "probe"},
    "dense, nothing kept": {"solver": "dense", "keep_for_questions": "none"},
    "pcg": {"solver": "pcg", "loo": "none", "tol": 1e-5, "max_passes": 200},
}
X, Y = data(N + 12, CLASSES)
NEW = data(5, CLASSES, seed=3)[0]


class Ledger:
    """Which samples a model should know, and around which head every one is linearised: −1 is the mean of all."""

    def __init__(self, model: LQFClassifier):
        problem = _reopened(model, X[:N], Y[:N])
        self.model, self.heads, self.ridge = model, problem.model.heads, problem.ridge
        self.fold = dict(zip(map(str, range(N)), problem.fold.tolist(), strict=True))
        self.x = dict(zip(map(str, range(N)), X[:N], strict=True))
        self.y = dict(zip(map(str, range(N)), Y[:N].tolist(), strict=True))

    def forget(self, ids: list[str]) -> None:
        self.model.forget(ids, train=None if self.model._kept_images is not None else X[:N])
        for name in ids:
            del self.fold[name], self.x[name], self.y[name]

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        before = set(self.model.fitted_.train.ids)
        self.model.add(x, y, train=None if self.model._kept_images is not None else X[:N])
        new = [name for name in self.model.fitted_.train.ids if name not in before]
        for name, pixels, label in zip(new, x, y.tolist(), strict=True):
            self.fold[name], self.x[name], self.y[name] = -1, pixels, label

    def optimum(self, x: Tensor) -> Tensor:
        """Outputs of x by the dense normal equations of all that is there, from nothing."""
        names = self.model.fitted_.train.ids
        assert set(names) == set(self.fold)
        images = np.stack([self.x[name] for name in names])
        problem = _reopened(self.model, images, np.array([self.y[name] for name in names]))
        heads = torch.cat([self.heads, self.heads.mean(0, keepdim=True)])
        fold = torch.tensor([self.fold[name] % len(heads) for name in names])
        problem = replace(problem, model=replace(problem.model, heads=heads), fold=fold, ridge=self.ridge)
        h, b = normal_equations(problem, problem.weights)
        k = problem.model.head_size
        if not self.model.fitted_.head_alone:
            return brute_outputs(problem, torch.linalg.solve(h, b), x)
        head = torch.cat([torch.linalg.solve(h[:k, :k], b[:k]), problem.zero_body()])
        return brute_outputs(problem, head, x)


def _reopened(model: LQFClassifier, x: np.ndarray, y: np.ndarray) -> QuadraticProblem:
    """The problem as its model has it, over given images."""
    fitted = model.fitted_
    samples = load_samples(x, y, tensors="normalized")
    images = open_images(replace(samples, ids=fitted.train.ids), fitted.preprocess)
    return reopen(replace(fitted, known=None), images, Context(fitted.settings, torch.device("cpu"))).quadratic


def _fitted(name: str) -> LQFClassifier:
    return classifier(**FITS[name]).fit(X[:N], Y[:N])


def _gap(model: LQFClassifier, expected: Tensor) -> float:
    found = torch.tensor(model.decision_function(NEW)).view_as(expected)
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("seed", range(2))
def test_any_sequence_ends_where_a_fit_on_what_remains_ends(name: str, seed: int) -> None:
    ledger, rng, fresh = Ledger(_fitted(name)), np.random.default_rng(seed), N
    for _ in range(4):
        there = list(ledger.fold)
        if rng.random() < 0.5 or fresh + 3 > len(X):
            gone = rng.choice(there, size=int(rng.integers(1, 4)), replace=False).tolist()
            left = {ledger.y[name] for name in there if name not in gone}
            if len(left) == CLASSES:
                ledger.forget(gone)
        else:
            more = int(rng.integers(1, 4))
            ledger.add(X[fresh : fresh + more], Y[fresh : fresh + more])
            fresh += more
        assert _gap(ledger.model, ledger.optimum(torch.tensor(NEW))) < (1e-3 if name == "pcg" else 1e-8)
