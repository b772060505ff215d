"""Do two sets of images come from the same distribution? Let a classifier try to tell them apart.

A closed-form head is fitted to the question "training image or test image?", on the model's own features, each class
counting equally in both sets so that other class frequencies alone do not show. Its scores are out of sample; their AUC
is 1/2 where the sets cannot be told apart, and near 1 where they can.

Not one image is left out at a time but a fold with its share of both sets: without one test image there are fewer test
images, and where nothing else can be learnt that alone would push its score away from the test set (AUC far below 1/2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lqf.evaluation.ranking import area
from lqf.fitting.folds import stratified_folds
from lqf.fitting.select_ridge import Judge, choose_ridge
from lqf.solvers import Head


@dataclass(frozen=True)
class Shift:
    """How well test images can be told from training images.

    Attributes:
        auc: probability that a test image scores higher than a training image, out of sample.
        standard_error: of the AUC (Hanley and McNeil 1982).
        train, test: (N,), (M,) scores; the higher, the more like the test set; NaN for images that took no part.
    """

    auc: float
    standard_error: float
    train: np.ndarray
    test: np.ndarray

    @property
    def visible(self) -> bool:
        """The sets differ, by more than chance and enough to matter."""
        return self.auc > 0.5 + max(3 * self.standard_error, 0.15)


def measure_shift(
    train: Tensor, test: Tensor, train_labels: np.ndarray, test_labels: np.ndarray, *, most: int = 1500
) -> Shift | None:
    """From features (N, p) and (M, p) with their labels; None where a set has fewer than two images of shared classes.

    Only classes that both sets have take part, and at most ``most`` random images of each set.
    """
    shared = np.intersect1d(train_labels, test_labels)
    a, b = (_some(np.flatnonzero(np.isin(y, shared)), most) for y in (train_labels, test_labels))
    if min(len(a), len(b)) < 2:
        return None
    labels = np.concatenate([train_labels[a], test_labels[b]])
    is_test = np.arange(len(labels)) >= len(a)
    scores = _out_of_sample(torch.cat([train[a], test[b]]), is_test, 2 * labels + is_test)
    low, high = scores[~is_test], scores[is_test]
    auc = area(low, high)
    train_scores, test_scores = np.full(len(train_labels), np.nan), np.full(len(test_labels), np.nan)
    train_scores[a], test_scores[b] = low, high
    return Shift(auc, _standard_error(auc, len(low), len(high)), train_scores, test_scores)


def _some(index: np.ndarray, most: int) -> np.ndarray:
    if len(index) <= most:
        return index
    return np.sort(np.random.default_rng(0).choice(index, most, replace=False))


def _balanced(cells: np.ndarray) -> Tensor:
    """Weights with which every (class, set) has the same total, one per sample on average."""
    _, inverse, counts = np.unique(cells, return_inverse=True, return_counts=True)
    weights = 1 / counts[inverse]
    return torch.tensor(weights * len(cells) / weights.sum())


def _out_of_sample(features: Tensor, is_test: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """(n,) scores from fits without each of five folds; ``cells`` number the pairs of class and set."""
    side, weights = torch.tensor(is_test).long(), _balanced(cells)
    targets = 2.0 * side[:, None].double() - 1
    n = len(side)
    fold = stratified_folds(torch.arange(n), torch.tensor(cells), seed=0)
    head = Head.of(features.double(), targets, weights, fold)
    judge = Judge(targets, side, weights, 1)
    choice = choose_ridge(lambda _: head.ridge, head.residual, judge, [1.0], None)
    return judge.outputs(choice.e_loo)[:, 0].cpu().numpy()


def _standard_error(auc: float, n: int, m: int) -> float:
    q1, q2 = auc / (2 - auc), 2 * auc * auc / (1 + auc)
    variance = auc * (1 - auc) + (m - 1) * (q1 - auc * auc) + (n - 1) * (q2 - auc * auc)
    return float(np.sqrt(max(variance, 0.25 / (n * m)) / (n * m)))
