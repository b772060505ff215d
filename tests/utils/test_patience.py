"""Quick work shows nothing; what lasts is shown with what was remarked before."""

import io
import sys
from types import SimpleNamespace

import pytest

from lqf.utils import patience
from lqf.utils.notebook_line import NotebookLine
from lqf.utils.patience import Patience
from lqf.utils.plain_text import PlainText, TerminalLine
from lqf.utils.progress_lines import ProgressLines


@pytest.fixture
def clock(monkeypatch):
    """A time that stands still until it is told."""
    now = [100.0]
    monkeypatch.setattr(patience.time, "monotonic", lambda: now[0])
    return now


def test_remarks_wait_and_come_in_their_order(clock):
    said = []
    kept = Patience(2.0, said.append)
    kept.note("one")
    clock[0] += 1.5
    kept.note("two")
    assert not kept.over()
    assert said == []
    clock[0] += 0.5
    assert kept.over()
    kept.note("three")
    assert said == ["one", "two", "three"]


def test_after_a_rest_patience_begins_anew(clock):
    kept = Patience(1.0, lambda _: None)
    clock[0] += 5
    kept.begin()
    assert not kept.over()  # five seconds in which nothing was done
    clock[0] += 1
    assert kept.over()
    clock[0] += 0.5
    kept.begin()
    assert kept.over()  # the same work goes on


@pytest.mark.parametrize("kind", [lambda out, s: PlainText(TerminalLine(out), s), ProgressLines])
def test_a_quick_stage_leaves_no_trace_and_a_sentence_that_matters_does(clock, kind):
    out = io.StringIO()
    progress = kind(out, 1.0)
    progress.note("a remark")
    with progress.stage("predicting", total=2) as stage:
        stage.advance()
        stage.advance()
    assert out.getvalue() == ""
    progress.say("skipped `x.jpg`")
    assert "skipped `x.jpg`" in out.getvalue()
    assert "remark" not in out.getvalue()


def test_a_stage_that_lasts_appears_with_all_that_it_has_done(clock):
    out = io.StringIO()
    progress = PlainText(TerminalLine(out), 1.0)
    with progress.stage("predicting", total=4, unit="images") as stage:
        stage.advance(3)
        assert out.getvalue() == ""
        clock[0] += 1.5
        stage.advance()
    assert "4/4 images" in out.getvalue()
    assert out.getvalue().endswith("\n")


class Cell:
    """IPython's display, with all that one place has shown."""

    def __init__(self):
        self.shown = []

    def display(self, data, *, raw, display_id):
        assert raw
        assert display_id
        self.shown.append([data["text/plain"]])
        return SimpleNamespace(update=lambda data, raw: self.shown[-1].append(data["text/plain"]))


def test_in_a_notebook_one_place_shows_one_stage_after_the_other(clock, monkeypatch, capsys):
    cell = Cell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=cell))
    monkeypatch.setitem(sys.modules, "IPython.display", cell)
    progress = PlainText(NotebookLine(), 1.0)
    clock[0] += 1
    for name in ("reading images", "features"):
        with progress.stage(name, total=100) as stage:
            clock[0] += 1
            stage.advance(50)
    progress.say("skipped `x.jpg`")
    (place,) = cell.shown
    assert place[0].startswith("reading images [........")
    assert place[-1].startswith("features [########")
    assert capsys.readouterr() == ("skipped `x.jpg`\n", "")
