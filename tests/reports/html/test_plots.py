"""Plots: every mark inside the frame, round ticks, nothing drawn where there is nothing to draw."""

import re

import numpy as np
import pytest

from lqf.evaluation.metrics import calibration_error, reliability, standard_error
from lqf.reports.html import plots
from lqf.reports.html.tables import WHOLE, class_table, confused_pairs, confusion_matrix
from lqf.solvers.solution import Step


def _inside(plot):
    for mark in plot["marks"]:
        points = re.findall(r"(-?[\d.]+),(-?[\d.]+)", mark.get("points", ""))
        points += [(mark["x"], mark["y"])] if mark["kind"] == "dot" else []
        for x, y in points:
            assert plot["left"] - 0.2 <= float(x) <= plot["right"] + 0.2
            assert plot["top"] - 0.2 <= float(y) <= plot["bottom"] + 0.2


@pytest.mark.parametrize("n", [1, 10, 240, 5000])
def test_reliability_bins_hold_all_samples_in_order(n):
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1, n)
    right = rng.uniform(size=n) < confidence
    bins = reliability(confidence, right)
    assert sum(b["n"] for b in bins) == n
    assert 1 <= len(bins) <= 10
    assert [b["confidence"] for b in bins] == sorted(b["confidence"] for b in bins)
    assert sum(b["n"] * b["right"] for b in bins) == pytest.approx(right.sum())
    assert calibration_error(bins) < (0.06 if n == 5000 else 1.01)
    _inside(plots.reliability_plot([("test", "test", bins)]))


def test_an_error_of_zero_is_no_certainty():
    assert standard_error(0.0, 10) == pytest.approx((1 / 12 * 11 / 12 / 10) ** 0.5)
    assert standard_error(0.5, 100) == pytest.approx(0.05)


@pytest.mark.parametrize("errors", [[0.1, 0.1, 0.1], [0.0, 0.5, 1.0], [0.296, 0.283, 0.301]])
def test_decay_plot(errors):
    tried = [{"weight_decay": 10.0**k, "loo_error": e} for k, e in enumerate(errors)]
    plot = plots.decay_plot({"kept": 10.0, "tried": tried})
    _inside(plot)
    assert [m["class"] for m in plot["marks"] if m["kind"] == "dot"] == ["loo", "kept", "loo"]
    assert 2 <= len(plot["y_ticks"]) <= 8


def test_residual_plot_needs_two_measurements():
    step = Step(1, 1.0, 0.3)
    assert plots.residual_plot([]) is None
    assert plots.residual_plot([step]) is None
    assert plots.residual_plot([step, Step(2, 1.0, None)]) is None
    plot = plots.residual_plot([step, Step(9, 1.0, 2e-7)])
    _inside(plot)
    assert {t["label"] for t in plot["y_ticks"]} & {"10⁻⁶", "10⁻⁴", "10⁻³"}


def test_shift_plot_holds_all_images():
    _inside(plots.shift_plot([0.0, 0.1, 0.2, 1.0], [0.5, 2.0]))
    _inside(plots.shift_plot([1.0, 1.0], [1.0, 1.0]))


def test_steps_are_round():
    assert [plots.round_step(x) for x in (0.7, 1.0, 1.3, 4.0, 7.0, 0.03)] == pytest.approx([1, 1, 2, 5, 10, 0.05])


def test_the_confusion_matrix_shows_what_is_confused_most():
    classes = [f"c{k}" for k in range(40)]
    labels = np.arange(400) % 40
    predicted = np.where(labels == 7, 30, labels)
    predicted[:40] = (labels[:40] + 1) % 40
    matrix = confusion_matrix(classes, labels, predicted)
    assert len(matrix["names"]) <= WHOLE
    assert {"c7", "c30"} <= set(matrix["names"])
    assert matrix["left_out"] == 40 - len(matrix["names"])
    for row in matrix["rows"]:
        assert sum(c["n"] for c in row["cells"]) + row["elsewhere"] == row["n"] == 10
    few = confusion_matrix(classes[:3], np.array([0, 1, 2, 2]), np.array([0, 1, 1, 2]))
    assert few["left_out"] == 0
    assert [[c["n"] for c in row["cells"]] for row in few["rows"]] == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]


def test_tables_are_cut_with_a_count():
    classes = [f"c{k}" for k in range(40)]
    labels = np.arange(80) % 40
    pairs = confused_pairs(classes, labels, (labels + 1) % 40, most=5)
    assert len(pairs["rows"]) == 5
    assert pairs["left_out"] == 35
    errors = {"per_class": {name: {"n": 2, "error": k / 40} for k, name in enumerate(classes)}}
    table = class_table(classes, errors, None)
    assert (len(table["rows"]), table["left_out"], table["rows"][0]["name"]) == (20, 20, "c39")
