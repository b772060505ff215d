"""Bars are shown on a real pseudo-terminal, by a child process, as a person would see them."""

import re

import pytest

from lqf.utils import meter
from lqf.utils.progress import SILENT
from processes import python
from terminal import on_a_terminal

SCRIPT = """
import sys, time
from lqf.utils.progress import terminal_progress
progress = terminal_progress()
progress.say("Using [pcg]: 1.3 GB.")
with progress.stage("solving", total=4, unit="products") as stage:
    for i in range(3):
        stage.advance(residual=10.0 ** -i)
        time.sleep(0.3)
    progress.say("Half way.")
    with progress.stage("folds") as inner:
        inner.advance(2, best="avg")
    print("result")
    stage.advance(residual=1e-3)
"""
NO_RICH = "import sys; sys.modules['rich'] = sys.modules['rich.console'] = None\n"


@pytest.mark.parametrize("prelude", ["", NO_RICH], ids=["rich", "plain"])
def test_bar_shows_count_residual_and_remaining_time(prelude):
    if not prelude:
        pytest.importorskip("rich")
    out, shown = on_a_terminal(prelude + SCRIPT)
    assert out == "result\n"  # nothing else on stdout, and what was printed during a stage is there
    assert re.search(r"solving .*1/4 products  residual 1  \d:\d\d, \d:\d\d left", shown)
    assert re.search(r"3/4 products  residual 0\.01  \d:\d\d, \d:\d\d left", shown)
    assert re.search(r"folds .*2  best avg  0:00", shown)
    assert re.search(r"solving .*4/4 products  residual 0\.001  0:0\d\r?\n", shown)  # ended: only the time it took
    assert "Using [pcg]: 1.3 GB." in shown  # no markup
    assert "Half way." in shown


@pytest.mark.parametrize("prelude", ["", NO_RICH], ids=["rich", "plain"])
def test_an_error_in_a_stage_passes_through_and_closes_the_bar(prelude):
    failing = """
from lqf.utils.progress import terminal_progress
progress = terminal_progress()
try:
    with progress.stage("outer", total=2), progress.stage("inner", total=2) as stage:
        stage.advance()
        raise KeyboardInterrupt
except KeyboardInterrupt:
    with progress.stage("after", total=1) as stage:
        stage.advance()
"""
    _, shown = on_a_terminal(prelude + failing)
    assert re.search(r"after .*1/1  0:00\r?\n", shown)


def test_only_sentences_of_short_work_where_stderr_is_no_terminal():
    done = python("-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "result\n"
    assert done.stderr == "Using [pcg]: 1.3 GB.\nHalf way.\n"


def test_silent_says_nothing(capfd):
    SILENT.say("hello")
    with SILENT.rung("LQF", 40.0, 80.0), SILENT.stage("solving", total=3, unit="products") as stage:
        stage.advance(residual=1.0)
    assert capfd.readouterr() == ("", "")


def test_remaining_time_follows_the_mean_rate(monkeypatch):
    now = 100.0
    monkeypatch.setattr(meter.time, "monotonic", lambda: now)
    products = meter.Meter(total=30, unit="products")
    assert str(products) == "0/30 products  0:00, -:-- left"
    now = 220.0
    products.advance(10, residual=0.0123)
    assert str(products) == "10/30 products  residual 0.012  2:00, 4:00 left"
    products.advance(20)
    assert str(products) == "30/30 products  residual 0.012  2:00, 0:00 left"
    now = 3823.0
    products.end()
    assert str(products) == "30/30 products  residual 0.012  1:02:03"


def test_a_stage_of_nothing_or_of_unknown_length_has_no_remaining_time():
    for total in (None, 0):
        assert str(meter.Meter(total=total, unit="")).endswith("0:00")


@pytest.mark.parametrize("prelude", ["", NO_RICH], ids=["rich", "plain"])
def test_a_terminal_shows_the_stages_of_a_rung_as_any_others(prelude):
    if not prelude:
        pytest.importorskip("rich")
    script = """
from lqf.utils.progress import terminal_progress
progress = terminal_progress()
with progress.rung("LQF", 40.0, 80.0), progress.stage("solving", total=1, unit="passes") as stage:
    stage.advance()
"""
    out, shown = on_a_terminal(prelude + script)
    assert out == ""
    assert re.search(r"solving .*1/1 passes  0:00\r?\n", shown)
