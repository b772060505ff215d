"""The head without each fold: heads that were really fitted without it, their strengths chosen without it."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dense import ridge_regression
from fits import CPU, SMALL, convnet, pictures
from lqf.backbones import load_backbone
from lqf.data import load_samples, open_images
from lqf.fitting import Context, HeadFit, TrainingSet
from lqf.fitting.encoder import Encoder
from lqf.fitting.head_fit import PRIOR_STRENGTH
from lqf.fitting.head_folds import HeadFolds, without_folds
from lqf.linear.inputs import average_views
from lqf.linear.model import with_one
from lqf.settings import Settings

N = 24
X, Y = pictures(N)
S = np.random.default_rng(0).uniform(0.5, 2, N)
GROUPS = np.arange(N) // 6 * 3 + np.arange(N) % 3
"""Four groups of two samples in each of three classes."""
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "views": {"views": "flip"},
    "groups": {"groups": GROUPS},
    "views and groups": {"views": "flip", "groups": GROUPS},
}
every_case = pytest.mark.parametrize("case", CASES)


def training_set(y: np.ndarray = Y, *, views: str = "none", groups: Any = None, **settings: Any) -> TrainingSet:
    images = open_images(load_samples(X[: len(y)], y, sample_weight=S[: len(y)], groups=groups), SMALL)
    return TrainingSet.of(
        images, SMALL, Context(Settings(solver="head", views=views, dtype="float64", **settings), CPU)
    )


def head_of(data: TrainingSet) -> HeadFit:
    encoder = Encoder(data, load_backbone(convnet()))
    return HeadFit.of(encoder, "avg", encoder.features())


def fitted_without(head: HeadFit, strengths: tuple[float, ...]) -> Tensor:
    """(N, C) every sample by the ridge regression over the rows of the other folds, the views averaged."""
    data, out = head.data, torch.zeros_like(head.data.targets)
    z, r, s = with_one(head.features), data.targets - data.constant, data.weights
    for k, mu in enumerate(strengths):
        keep = data.folds != k
        out[~keep] = data.constant + z[~keep] @ ridge_regression(z[keep], r[keep], s[keep], mu)
    return average_views(out, data.n_views)


def by_the_fixed_strength(head: HeadFit, monkeypatch: pytest.MonkeyPatch) -> HeadFolds:
    with monkeypatch.context() as patch:
        patch.setattr("lqf.fitting.head_folds.NESTED_ROWS", 0)
        return without_folds(head)


@every_case
def test_a_fixed_strength_gives_the_heads_without_each_fold(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head = head_of(training_set(**CASES[case]))
    found = by_the_fixed_strength(head, monkeypatch)
    folds = int(head.data.folds.max()) + 1
    assert found.strengths == (head.choice.mu,) * folds
    assert folds == (4 if "groups" in case else 5)
    torch.testing.assert_close(found.outputs, fitted_without(head, found.strengths), rtol=1e-9, atol=1e-9)


@every_case
def test_the_strength_is_chosen_again_as_a_fit_without_the_fold_chooses_it(case: str) -> None:
    data = training_set(**CASES[case])
    head = head_of(data)
    found = without_folds(head)
    sample_folds = data.folds[:: data.n_views]
    for k, mu in enumerate(found.strengths):
        alone = head_of(data.some((sample_folds != k).numpy()))
        assert mu == pytest.approx(alone.choice.mu, rel=1e-9)
    torch.testing.assert_close(found.outputs, fitted_without(head, found.strengths), rtol=1e-9, atol=1e-9)


def test_a_strength_that_was_given_stays() -> None:
    head = head_of(training_set(weight_decay=0.3))
    found = without_folds(head)
    assert found.strengths == pytest.approx((0.3 * S.sum(),) * 5)
    torch.testing.assert_close(found.outputs, fitted_without(head, found.strengths), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("groups", [None, GROUPS], ids=["samples", "groups"])
@pytest.mark.parametrize("fixed", [False, True], ids=["chosen again", "fixed"])
def test_labels_of_a_fold_do_not_reach_its_predictions(
    fixed: bool, groups: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"weight_decay": 0.1} if fixed else {}
    before = head_of(training_set(groups=groups, views="flip", **settings))
    fold = before.data.folds
    here = (fold[::2] == 1).numpy()
    after = head_of(training_set(np.where(here, (Y + 1) % 3, Y), groups=groups, views="flip", **settings))
    monkeypatch.setattr(TrainingSet, "folds", fold)  # which are stratified by the labels
    a, b = without_folds(before), without_folds(after)
    torch.testing.assert_close(b.outputs[here], a.outputs[here], rtol=1e-9, atol=1e-9)
    assert b.strengths[1] == pytest.approx(a.strengths[1])
    assert not torch.allclose(b.outputs[~here], a.outputs[~here], atol=1e-2)


def test_of_two_images_per_class_one_is_left_and_the_strength_is_the_prior() -> None:
    """Leave-one-out of the others would judge by classes that were never seen, for which no strength is high enough."""
    data = training_set(Y[:6])
    head, folds = head_of(data), data.folds
    found = without_folds(head)
    z, root = with_one(head.features), data.weights.sqrt()[:, None]
    for k, mu in enumerate(found.strengths):
        keep = folds != k
        assert sorted(data.labels[keep].tolist()) == [0, 1, 2]
        scale = float((root * z)[keep].square().sum() / keep.sum())  # the mean eigenvalue of its kernel
        assert mu == pytest.approx(PRIOR_STRENGTH * scale)
    torch.testing.assert_close(found.outputs, fitted_without(head, found.strengths), rtol=1e-9, atol=1e-9)


def test_a_class_of_which_one_image_is_left_does_not_choose_the_strength() -> None:
    y = np.array([0, 1] * 8 + [2, 2])
    data = training_set(y)
    chosen = without_folds(head_of(data)).strengths
    for k, mu in enumerate(chosen):
        part = data.some((data.folds != k).numpy())
        assert bool(part.single.any()) is bool((data.folds[16:] == k).any())
        assert mu == pytest.approx(head_of(part).choice.mu, rel=1e-9)
