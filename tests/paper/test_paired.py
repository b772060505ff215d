"""Differences of two methods' errors, and what they say of a statement: with its sign, and with an interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lqf_paper.report.paired import gap, mean_gap, paired, unpaired
from lqf_paper.report.verdicts import LESS, MORE, Statement, judge, near, verdict, verdict_table
from lqf_paper.report.winners import Winner
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done
from lqf_paper.runner.predictions import packed, unpacked

N = 400
LABELS = np.arange(N) % 4


def wrong(*rows: tuple[int, int]) -> np.ndarray:
    """Runs that are wrong on the images first … last."""
    out = np.zeros((len(rows), N), bool)
    for run, (first, last) in enumerate(rows):
        out[run, first:last] = True
    return out


def winner(method: str, errors: np.ndarray | list[float], *, kept: bool = True) -> Winner:
    """Of runs with these mistakes; or with these errors, without predictions."""
    runs = []
    for seed, of in enumerate(errors):
        result = {"test_error": float(np.mean(of))}
        if kept:
            result["predictions"] = packed((LABELS + of) % 4)
        runs.append(Done(Cell("fit", "birds", {"method": method, "seed": seed}), result, 1.0))
    return Winner(runs[0], tuple(runs), 0, LABELS)


def test_predictions_survive_as_text() -> None:
    classes = np.random.default_rng(0).integers(0, 1000, 500)
    assert np.array_equal(unpacked(packed(classes)), classes)
    assert len(packed(np.zeros(5000, int))) < 60


def test_one_run_each_is_tangos_interval_and_mcnemars_test() -> None:
    a, b = wrong((0, 40)), wrong((10, 44))  # ten images only the first gets wrong, four only the second
    g = paired(a, b)
    assert (g.value, g.paired, g.runs) == (pytest.approx(6 / N), True, (1, 1))
    assert g.p_value == pytest.approx(2 * sum(math.comb(14, k) for k in range(5)) / 2**14)
    assert g.low < 0 < g.high
    apart = unpaired(40 / N, 34 / N, N)
    assert not apart.paired
    assert apart.high - apart.low > 2 * (g.high - g.low)  # what is hard for both drops out


def test_the_bootstrap_of_many_runs_knows_the_spread_of_images() -> None:
    g = paired(np.repeat(wrong((0, 40)), 5, 0), np.repeat(wrong((30, 50)), 5, 0))  # 30 against 10 images
    sigma = np.sqrt((40 / N - (20 / N) ** 2) / N)
    assert g.value == pytest.approx(20 / N)
    assert (g.high - g.low) / 2 == pytest.approx(1.96 * sigma, rel=0.05)


def test_the_bootstrap_of_many_runs_knows_the_spread_of_runs() -> None:
    same = np.repeat(wrong((0, 40)), 4, 0)
    runs = wrong((0, 40), (0, 80), (0, 20), (0, 60))
    assert paired(runs, same).high - paired(runs, same).low > 2 * (
        paired(same, wrong((0, 60))).high - paired(same, wrong((0, 60))).low
    )


def test_runs_that_no_image_tells_apart_are_not_certainly_alike() -> None:
    g = paired(np.repeat(wrong((0, 40)), 3, 0), wrong((0, 40)))
    assert g.value == 0.0
    assert g.low < 0 < g.high < 0.02


def test_without_predictions_the_errors_are_unpaired() -> None:
    a, b = winner("lqf", wrong((0, 40))), winner("nlft", [0.05], kept=False)
    g = gap(a, b)
    assert g is not None
    assert (g.value, g.paired) == (pytest.approx(0.05), False)
    assert "†" in g.points()
    assert gap(a, None) is None
    assert gap(a, a).paired  # type: ignore[union-attr]


def test_the_mean_over_data_sets_is_sharper_than_each() -> None:
    one, two = unpaired(0.2, 0.1, 400), unpaired(0.3, 0.1, 400)
    mean = mean_gap([one, two])
    assert mean is not None
    assert mean.value == pytest.approx(0.15)
    assert mean.value - mean.low == pytest.approx(np.hypot(one.value - one.low, two.value - two.low) / 2)
    assert mean_gap([]) is None


@pytest.mark.parametrize(
    ("low", "high", "claimed", "said"),
    [
        (0.01, 0.04, MORE, "confirmed"),
        (-0.04, -0.01, MORE, "contradicted"),  # an effect of the other sign is none of what was claimed
        (-0.01, 0.04, MORE, "not confirmed"),
        (-0.04, -0.01, LESS, "confirmed"),
        (0.01, 0.04, LESS, "contradicted"),
        (0.0, 0.04, MORE, "not confirmed"),
        (0.0, 0.0, LESS, "not confirmed"),
        (-0.01, 0.01, near(0.02), "confirmed"),
        (0.01, 0.03, near(0.02), "not confirmed"),
        (0.03, 0.05, near(0.02), "contradicted"),
        (-0.05, -0.03, near(0.02), "contradicted"),
    ],
)
def test_a_verdict_follows_from_an_interval_with_its_sign(
    low: float, high: float, claimed: tuple[float, float], said: str
) -> None:
    assert verdict(low, high, claimed) == said


def test_a_part_whose_removal_lowers_the_error_is_not_worth_something() -> None:
    full, less = winner("lqf", wrong((0, 80))), winner("lqf-no-leaky", wrong((0, 40)))
    (judged,) = judge([Statement("without it the error is higher", "lqf-no-leaky", "lqf", MORE)], {
        "birds": {"lqf": full, "lqf-no-leaky": less}
    })  # fmt: skip
    assert judged.overall == "contradicted"
    assert judged.values()["data"]["birds"]["verdict"] == "contradicted"
    table = verdict_table([judged], ["birds"])
    assert table.columns == ("statement", "birds")
    assert table.rows[0][1].startswith("-10.0 (")
    assert table.rows[0][1].endswith("✗")
