"""Intervals: published values, and as often right as they say."""

import numpy as np
import pytest

from evaluation.answers import answers
from lqf.evaluation import intervals, measure
from lqf.evaluation.intervals import Estimate, of_distance, of_share, on_logit_scale, percentile, units_of, wilson


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),  # Newcombe 1998, table I, method 3
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_of_the_literature(right, n, low, high):
    assert wilson(right / n, n) == pytest.approx((low, high), abs=5e-5)


def test_a_share_without_weights_and_groups_is_wilsons():
    right = np.arange(50) < 41
    found = of_share(0.82, np.full(50, 0.02), right - 0.82, np.arange(50))
    assert found.interval == pytest.approx(wilson(0.82, 50))
    assert found.complement() == Estimate(pytest.approx(0.18), *(pytest.approx(1 - x) for x in wilson(0.82, 50)[::-1]))


def test_one_group_alone_leaves_nearly_everything_open():
    right = np.arange(50) < 41
    low, high = of_share(0.82, np.full(50, 0.02), right - 0.82, np.zeros(50, int)).interval
    assert high - low > 0.7


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 10, 30, 1000])
def test_quantiles_of_students_t(freedom):
    stats = pytest.importorskip("scipy.stats")
    assert intervals._student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=3e-3)


def test_few_groups_leave_more_open_than_their_images():
    right, share = np.arange(40) % 5 > 0, np.full(40, 1 / 40)
    ends = [of_share(0.8, share, right - 0.8, np.arange(40) % groups).interval for groups in (40, 2)]
    assert ends[1][0] < ends[0][0] < ends[0][1] < ends[1][1]
    copies = np.repeat(np.arange(10), 4)  # every image four times, as one group
    grouped = of_share(0.8, share, right[copies] - 0.8, copies).interval
    alone = of_share(0.8, np.full(10, 0.1), right[:10] - 0.8, np.arange(10)).interval
    assert grouped[0] < alone[0] < alone[1] < grouped[1] + 0.01


def test_groups_are_numbered():
    assert units_of(None, 3).tolist() == [0, 1, 2]
    assert units_of(("b", "a", "b"), 3).tolist() == [1, 0, 1]


def test_draws_that_agree_or_are_not_known_give_no_interval():
    assert percentile(1.0, np.ones(9)).interval is None
    assert percentile(0.5, np.full(9, np.nan)).interval is None
    assert percentile(0.5, np.array([np.nan, 0.4, 0.6])).interval == pytest.approx((0.405, 0.595))
    assert on_logit_scale(1.0, 0.1).interval is None
    assert Estimate(None).complement() == Estimate(None)


def test_a_distance_that_chance_explains_begins_at_zero():
    drawn = np.linspace(0.1, 0.3, 101)
    assert of_distance(0.15, drawn, np.full(9, 0.2)).low == 0
    assert of_distance(0.25, drawn, np.full(9, 0.2)).interval == pytest.approx((0.205, 0.295))
    assert of_distance(0.0, np.zeros(9), np.zeros(9)).interval is None


TRUE = {"skill": 2.0, "seed": 99}


@pytest.mark.parametrize("sharp", [2.0, 1.0])
def test_intervals_hold_the_truth_about_as_often_as_they_say(monkeypatch, sharp):
    """Of 60 test sets of 200 images; a level of 0.95 gives fewer than 51 once in a thousand times."""
    for module in (intervals, measure):
        monkeypatch.setattr(module, "DRAWS", 200)
    truth = measure.measure(**answers(100_000, 3, sharp=sharp, **TRUE))
    held = dict.fromkeys(measure_names(), 0)
    for seed in range(60):
        found = measure.measure(**answers(200, 3, sharp=sharp, skill=2.0, seed=seed))
        for name in held:
            low, high = getattr(found, name).interval
            held[name] += low <= getattr(truth, name).value + 1e-3 and getattr(truth, name).value - 1e-3 <= high
    assert min(held.values()) >= 51, held


def measure_names():
    return ("accuracy", "balanced_accuracy", "macro_f1", "auc", "log_loss", "calibration_error")
