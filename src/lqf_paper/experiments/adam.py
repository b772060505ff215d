"""Linear methods by Adam, compared with the same by SGD (with K-FAC for LQF) or in closed form (LQF FC)."""

from __future__ import annotations

from collections.abc import Sequence

from lqf_paper.report.compare import cells_of, errors_in_bars
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Results, Summary
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "Adam instead of SGD"
METHOD_NAMES = ("lqf-adam", "lqf", "lqf-fc-adam", "lqf-fc", "gaf-adam", "gaf")
NOTES = ("LQF (paper) and GaF are by SGD, LQF (paper) with K-FAC; LQF FC is the closed form.",)


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every method over its grid."""
    return cells_of({m: m for m in METHOD_NAMES}, tasks, scale)


def summarise(results: Results) -> Summary:
    """Errors, as bars per data set."""
    return errors_in_bars(results, METHOD_NAMES, NOTES)
