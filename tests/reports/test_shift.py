"""Telling two sets apart: silent where they are alike, loud where they are not."""

import numpy as np
import pytest
import torch

from lqf.reports.shift import area, measure_shift


def _sets(n, m, *, move=0.0, classes=3, seed=0, shares=None):
    rng = np.random.default_rng(seed)
    means = 2 * rng.normal(size=(classes, 8))
    a, b = rng.integers(0, classes, n), rng.choice(classes, m, p=shares)
    x, z = means[a] + rng.normal(size=(n, 8)), means[b] + rng.normal(size=(m, 8))
    z[:, 0] += move
    return torch.tensor(x), torch.tensor(z), a, b


def test_equal_distributions_cannot_be_told_apart():
    shift = measure_shift(*_sets(200, 150))
    assert abs(shift.auc - 0.5) < 4 * shift.standard_error
    assert not shift.visible


def test_a_moved_set_is_told_apart():
    shift = measure_shift(*_sets(200, 150, move=4.0))
    assert shift.auc > 0.95
    assert shift.visible
    assert shift.test.mean() > shift.train.mean()


def test_other_class_frequencies_alone_do_not_show():
    shift = measure_shift(*_sets(300, 300, shares=[0.8, 0.1, 0.1]))
    assert not shift.visible


def test_only_shared_classes_take_part():
    x, z, a, b = _sets(60, 60)
    b = np.where(b == 0, 5, b)
    shift = measure_shift(x, z, a, b)
    assert np.isnan(shift.test[b == 5]).all()
    assert np.isnan(shift.train[a == 0]).all()
    assert np.isfinite(shift.train[a != 0]).all()
    assert measure_shift(x, z, np.zeros(60, int), np.ones(60, int)) is None


def test_large_sets_are_sampled():
    shift = measure_shift(*_sets(200, 150), most=50)
    assert np.isfinite(shift.train).sum() == np.isfinite(shift.test).sum() == 50


def test_area_counts_pairs_and_half_of_ties():
    rng = np.random.default_rng(0)
    low, high = rng.integers(0, 6, 40).astype(float), rng.integers(1, 7, 30).astype(float)
    pairs = (high[:, None] > low) + 0.5 * (high[:, None] == low)
    assert area(low, high) == pytest.approx(pairs.mean(), abs=1e-12)
