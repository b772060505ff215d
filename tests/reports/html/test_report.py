"""The report: complete, safe, self-contained and of bounded size, for few and for many samples and classes."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from html_reader import Reader, assert_needs_nothing_else
from lqf.errors import MissingDependency
from lqf.reports.html import words
from lqf.reports.html.environment import breakable, number, percent, precise, render
from lqf.reports.shift import Shift
from reports.html.synthetic import page
from stacks import kept_head, left_out

NAMES = {2: ("NORMAL", "PNEUMONIA"), 12: tuple(f"{k:03d}.Some_Bird_{k}" for k in range(12))}
CLIMB = {
    "effort": "standard",
    "rungs": kept_head(),
    "error": 0.153,
    "error_standard_error": 0.018,
    "error_note": "all choices made again without each of 5 folds",
    "next_rung": {"name": "LQF", "seconds": 267.0, "effort": "standard"},
}
CASES = {
    "10 samples of 2 classes": (10, NAMES[2], 0),
    "10 samples with a test set": (10, NAMES[2], 6),
    "240 samples of 12 classes": (240, NAMES[12], 120),
    "10,000 samples of 200 classes": (10_000, tuple(f"class number {k}" for k in range(200)), 2_000),
}


@pytest.fixture(scope="module", params=CASES)
def html(request):
    n, classes, n_test = CASES[request.param]
    return page(n, classes, n_test=n_test, copies=500)


def test_a_report_is_well_formed_needs_nothing_else_and_is_not_large(html):
    sources = assert_needs_nothing_else(html)
    assert len(html) < 4_000_000
    places = {value for _, name, value in Reader(html).attributes if name == "id"}
    assert {value[1:] for value in sources if value.startswith("#")} <= places


def test_sections_follow_what_is_known():
    alone, full = (Reader(page(60, NAMES[2], n_test=m)).text for m in (0, 60))
    for said in ("leave-one-out error", "Training labels that look wrong", "nearly the same", "least informative"):
        assert said in alone
        assert said in full
    for said in ("test error", "comes from another distribution", "AUC 0.93", "Why it predicts"):
        assert said not in alone
        assert said in full
    for said in ("reached the tolerance", "1.3e-02", "kept", "bilinear", "crossfit", "3,400,000"):
        assert said.lower() in full.lower()


def test_what_was_tried_gained_and_cost_is_on_the_page():
    text = re.sub(r"\s+", " ", Reader(page(60, NAMES[2], fit=CLIMB)).text.replace("\u202f", " "))
    for said in ("expected error", "15.3 %", "on unseen images, ± 1.8; all choices made again without each of 5 folds"):
        assert said in text
    for said in ("head, 8 views", "14.8 %", "0.387", "+0.007 ± 0.012", "−0.005 ± 0.012", "4 s"):
        assert said in text
    for said in (
        "not kept: gains nothing",
        "not tried: needs about 4 min",
        "The model is the closed-form head in 8 views",
    ):
        assert said in text
    assert "so the head was kept: last stage (−0.005 ± 0.012) gains nothing." in text
    assert (
        "Next would come LQF, the whole network linearised, about 4 min. lqf fit --effort standard --resume goes on"
        in text
    )


def test_one_model_that_was_named_has_nothing_tried():
    html = page(60, NAMES[2])
    assert "What was tried" not in html
    assert "#tried" not in html
    assert "expected error" not in html


def test_many_rungs_of_odd_kinds_are_shown_as_they_are():
    rungs = [*kept_head(), left_out("LQF, moved", '<script>alert("x")</script>'), left_out("stack", "not yet")]
    rungs[0] |= {"error": None, "loss": None}  # one image per class: nothing to judge it by
    rungs[3] |= {"error": None, "loss": None, "gain": None, "why": "the time was up"}
    html = page(24, NAMES[2], fit=CLIMB | {"rungs": tuple(rungs), "error": None, "next_rung": None})
    assert "<script" not in html
    text = Reader(html).text
    for said in ("given up: the time was up", "not tried yet", "not known to add anything: last stage was given up"):
        assert said in text


@pytest.mark.parametrize(("views", "advised"), [("none", True), ("flip", True), ("five", False), ("resized", False)])
def test_crops_are_advised_against_another_distribution_where_there_are_none(views: str, advised: bool) -> None:
    shift = Shift(0.93, 0.01, np.zeros(3), np.ones(3))
    fit = SimpleNamespace(n=1000, views=views)
    said = words.warning(fit, 0.02, {"n": 600, "error": 0.12}, shift)
    assert said is not None
    assert ("views='resized'" in said["text"]) is advised
    alike = words.warning(fit, 0.02, {"n": 600, "error": 0.12}, None)
    assert alike is not None
    assert "--views" not in alike["text"]


def test_many_classes_leave_a_readable_matrix_and_counts_of_what_is_left_out():
    text = re.sub(r"\s+", " ", Reader(page(4_000, tuple(f"c{k}" for k in range(200)), n_test=400)).text)
    assert "188 classes left out" in text
    assert "180 classes with no larger error not shown" in text
    assert "192 more classes not shown" in text
    assert re.search(r"[\d,]+ more labels that leave-one-out contradicts", text)


def test_figures_have_their_intervals_on_the_page():
    text = re.sub(r"\s+", " ", Reader(page(240, NAMES[12], n_test=120)).text.replace("\u202f", " "))
    table = text.partition("test setleave-one-out")[2]
    span = r"[\d.]+( %)? [\d.]+ to [\d.]+"
    for name in ("Error", "Balanced accuracy", "F1, mean of classes", "AUC, mean of classes", "Log loss"):
        assert re.search(rf"{name} ?{span} ?{span}", table), name
    alone = re.sub(r"\s+", " ", Reader(page(240, NAMES[2])).text.replace("\u202f", " "))
    assert re.search(rf"AUC ?{span} ?Log loss", alone)


def test_many_classes_have_their_whole_confusions_as_a_picture():
    html = page(4_000, tuple(f"c{k}" for k in range(200)), n_test=400)
    assert "All 200 classes on the test set" in Reader(html).text
    assert re.search(r"<title>c\d+ → c\d+: \d+ of \d+</title>", html)
    assert "All 12 classes" not in page(240, NAMES[12])
    assert "All 200 classes in leave-one-out" in page(400, tuple(f"c{k}" for k in range(200)))


def test_names_are_escaped():
    bad = '<script>alert("x")</script>&\'"'
    html = page(24, (bad, "b"), n_test=12, name=bad)
    assert "<script" not in html
    assert bad in Reader(html).text


def test_numbers_are_written_as_people_do():
    assert percent(0.1234) == "12.3\u202f%"
    assert percent(None) == number(None) == "–"
    assert number(4.63e-5) == "4.63·10⁻⁵"
    assert number(12.34) == "12.3"
    assert precise(0.5) == "50.0\u202f%"
    assert precise(0.99998312) == "99.9983\u202f%"
    assert precise(1.0) == "100.0\u202f%"
    assert str(breakable("a_<b>/c.jpg")) == "a_<wbr>&lt;b&gt;/<wbr>c.<wbr>jpg"


def test_missing_jinja_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependency, match="pip install jinja2"):
        render("report.html.jinja")
