"""Weights under which every class counts alike: scikit-learn's, with the sum they had."""

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from lqf.evaluation.balance import balanced, class_factors, effective_number, judging_weights

LABELS = torch.tensor([0, 0, 0, 0, 2, 2, 1])
S = torch.tensor([1.0, 2, 0.5, 1, 3, 0.25, 1], dtype=torch.float64)


def test_the_factors_are_those_of_scikit_learn() -> None:
    y = LABELS.numpy()
    plain = compute_class_weight("balanced", classes=np.arange(3), y=y)
    np.testing.assert_allclose(class_factors(torch.ones(7), LABELS, 3), plain, rtol=1e-15)
    weighted = compute_class_weight("balanced", classes=np.arange(3), y=y, sample_weight=S.numpy())
    np.testing.assert_allclose(class_factors(S, LABELS, 3), weighted, rtol=1e-15)


def test_balanced_weights_are_the_same_in_every_class_and_keep_their_sum() -> None:
    w = balanced(S, LABELS)
    np.testing.assert_allclose(torch.bincount(LABELS, w), S.sum() / 3, rtol=1e-15)
    assert float(w.sum()) == pytest.approx(float(S.sum()), rel=1e-15)
    assert torch.allclose(w[1] / w[0], S[1] / S[0])  # within a class they keep their ratios


def test_a_class_without_weight_stays_without_and_is_none_of_those_that_share() -> None:
    w = balanced(torch.tensor([1.0, 1, 0, 1]), torch.tensor([0, 0, 1, 3]))
    assert w.tolist() == [0.75, 0.75, 0.0, 1.5]
    assert balanced(torch.ones(0), torch.zeros(0, dtype=torch.long)).tolist() == []


def test_classes_of_one_size_change_nothing() -> None:
    labels = torch.arange(18) % 3
    assert torch.equal(balanced(torch.ones(18, dtype=torch.float64), labels), torch.ones(18, dtype=torch.float64))


def test_who_counts_alike_is_chosen() -> None:
    assert judging_weights("images", S, LABELS) is S
    assert torch.equal(judging_weights("classes", S, LABELS), balanced(S, LABELS))


def test_weights_are_worth_as_many_samples_as_are_equally_certain() -> None:
    assert effective_number(torch.full((7,), 0.3)) == pytest.approx(7)
    assert effective_number(torch.tensor([1.0, 0, 0])) == 1
    assert effective_number(torch.zeros(3)) == 0
    generator = np.random.default_rng(0)  # the spread of a weighted mean
    means = (generator.normal(size=(200_000, 7)) * S.numpy()).sum(1) / float(S.sum())
    assert effective_number(S) == pytest.approx(1 / means.var(), rel=0.02)
