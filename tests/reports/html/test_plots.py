"""Plots: every mark inside the frame, round ticks, nothing drawn where there is nothing to draw."""

import re

import numpy as np
import pytest

from lqf.evaluation.metrics import standard_error
from lqf.evaluation.reliability import calibration_error, reliability
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


STAGES = {
    "few": ["stem", "layer1", "layer2", "layer3", "layer4"],
    "many": ["stem", *(f"stage{k}" for k in range(1, 8)), "final"],
    "blocks": ["patch_embed", *(f"blocks.{k}" for k in range(12)), "norm"],
    "long": ["conv_proj", *(f"encoder.layers.encoder_layer_{k}" for k in range(12)), "encoder.ln"],
    "very many": ["patch_embed", *(f"blocks.{k}" for k in range(40)), "norm"],
    "one": ["all"],
}
DECAYS = (10.0 ** np.random.default_rng(0).uniform(-3, 3, 42)).tolist()


def _stages(names, decays=None):
    decays = decays or DECAYS[: len(names)]
    return plots.stages_plot({"strengths": dict(zip(names, decays, strict=True)), "head": 0.02})


def _value(plot, y):
    """Of a height, by two ticks of the axis."""
    power = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    (a, low), (b, high) = [(t["at"], int(t["label"][2:].translate(power))) for t in plot["y_ticks"]][:2]
    return 10 ** (low + (y - a) / (b - a) * (high - low))


@pytest.mark.parametrize("names", STAGES.values(), ids=STAGES)
def test_every_stage_and_the_head_have_a_dot_at_their_weight_decay(names):
    plot = _stages(names)
    _inside(plot)
    dots = [m for m in plot["marks"] if m["kind"] == "dot"]
    decays = [*DECAYS[: len(names)], 0.02]
    assert [m["tip"].partition(":")[0] for m in dots] == [*names, "head"]
    assert [m["class"] for m in dots] == ["loo"] * len(names) + ["kept"]
    for dot, decay in zip(dots, decays, strict=True):
        assert _value(plot, dot["y"]) == pytest.approx(decay, rel=0.02)
        assert dot["tip"].endswith(f"weight decay {decay:.3g}")
    places = [m["x"] for m in dots]
    assert places == sorted(places)
    named = [t["at"] for t in plot["x_ticks"]]
    assert named[-1] == places[-1]
    assert set(named) <= set(places)
    (line,) = [m for m in plot["marks"] if m["kind"] == "line"]
    assert line["points"].split() == [f"{m['x']},{m['y']}" for m in dots[:-1]]  # the head is none of the stages


@pytest.mark.parametrize("names", STAGES.values(), ids=STAGES)
def test_names_of_stages_can_be_told_apart_and_do_not_overlap(names):
    plot = _stages(names)
    labels = [t["label"] for t in plot["x_ticks"]]
    assert len(set(labels)) == len(labels) >= min(len(names) + 1, 14)
    assert labels[-1] == "head"
    gap = min(b["at"] - a["at"] for a, b in zip(plot["x_ticks"], plot["x_ticks"][1:], strict=False))
    if plot["turned"]:
        below = 13 + plots.LETTER * max(map(len, labels)) * np.sin(np.radians(plot["turned"]))
        assert plot["bottom"] + below < plot["height"] - 6 - 8  # above the name of the axis, of 11 px
        assert gap * np.sin(np.radians(plot["turned"])) >= 11  # lines of 11 px
    else:
        assert labels == [*names, "head"]
        assert gap > plots.LETTER * max(map(len, labels))


def test_only_names_without_room_are_turned():
    assert [bool(_stages(names)["turned"]) for names in STAGES.values()] == [False, True, True, True, True, False]
    assert _stages(STAGES["few"])["height"] == plots.HEIGHT


def test_equal_weight_decays_have_an_axis():
    plot = _stages(["a", "b"], [0.02, 0.02])
    _inside(plot)
    assert len(plot["y_ticks"]) == 2
    _inside(plots.stages_plot({"strengths": {"a": 1.0}, "head": 1.0}))


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
    errors = {"per_class": {name: {"n": 2, "error": k / 40, "f1": None} for k, name in enumerate(classes)}}
    table = class_table(classes, errors, None)
    assert (len(table["rows"]), table["left_out"], table["rows"][0]["name"]) == (20, 20, "c39")
