"""What Python code shows unless it is told otherwise: bars in terminals and notebooks, in logs a line now and then.

      LQFClassifier(verbose=0)                  nothing
      model.fit(X, y, progress=terminal_progress())   what the command line shows

Work of a second shows nothing: neither does predicting one image flicker, nor does a search over settings flood.
"""

from __future__ import annotations

import multiprocessing
import sys

from lqf.utils.notebook_line import NotebookLine
from lqf.utils.plain_text import PlainText
from lqf.utils.progress import SILENT, Progress, terminal_progress
from lqf.utils.progress_lines import ProgressLines

SECONDS, LOG_SECONDS = 1.0, 2.0
"""In which nothing is shown: where people look, and in a log."""


def default_progress(verbose: int = 1) -> Progress:
    """For one call, from now on.

    Args:
        verbose: 0: silent.
    """
    if not verbose or sys.stderr is None:  # a program with windows has no stderr
        return SILENT
    if multiprocessing.current_process().name != "MainProcess":  # one of many that write at once: no bars
        return ProgressLines(sys.stderr, LOG_SECONDS)
    if in_notebook():
        return PlainText(NotebookLine(), SECONDS)
    return terminal_progress(SECONDS if sys.stderr.isatty() else LOG_SECONDS)


def in_notebook() -> bool:
    """Whether IPython runs this code for a page and not in a terminal; where it does, it has been imported."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
