"""What Python code shows by itself: in a terminal, in a notebook, in a log, in one of many processes."""

import re
import sys
from types import SimpleNamespace

import pytest

from lqf.utils import default_progress as module
from lqf.utils.default_progress import default_progress, in_notebook
from lqf.utils.plain_text import PlainText
from lqf.utils.progress import SILENT
from lqf.utils.progress_lines import ProgressLines
from processes import python
from terminal import on_a_terminal

SCRIPT = """
import time
from lqf.utils.default_progress import default_progress
progress = default_progress(VERBOSE)
with progress.stage("quick", total=2) as stage:
    stage.advance(2)
with progress.stage("slow", total=4) as stage:
    for _ in range(4):
        time.sleep(0.35)
        stage.advance()
"""


def test_a_terminal_shows_what_takes_longer_than_a_second():
    _, shown = on_a_terminal(SCRIPT.replace("VERBOSE", "1"))
    assert "quick" not in shown
    assert re.search(r"slow .*4/4 ", shown)


def test_verbose_0_is_silent_and_a_log_has_no_line_about_seconds():
    assert on_a_terminal(SCRIPT.replace("VERBOSE", "0"))[1] == ""
    done = python("-c", SCRIPT.replace("VERBOSE", "1"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_notebook_is_told_from_ipython_in_a_terminal(monkeypatch):
    for shell, notebook in ((None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=object()), True)):
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert in_notebook() == notebook
    assert isinstance(default_progress(), PlainText)
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()


def test_one_of_many_processes_draws_no_bar(monkeypatch):
    worker = SimpleNamespace(name="LokyProcess-1")
    monkeypatch.setattr(module.multiprocessing, "current_process", lambda: worker)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(default_progress(), ProgressLines)


@pytest.mark.parametrize("verbose", [0, False])
def test_silence_is_silence(verbose, monkeypatch):
    assert default_progress(verbose) is SILENT
    monkeypatch.setattr(sys, "stderr", None)
    assert default_progress(1) is SILENT
