"""Linear methods by Adam, beside the same by SGD (with K-FAC for LQF) or in closed form (LQF FC)."""

from __future__ import annotations

from collections.abc import Sequence

from lqf.paper.cells import Cell
from lqf.paper.compare import cells_of, errors_in_bars
from lqf.paper.experiment import Results, Summary
from lqf.paper.lab import Task
from lqf.paper.scale import Scale

TITLE = "Adam instead of SGD"
METHOD_NAMES = ("lqf-adam", "lqf", "lqf-fc-adam", "lqf-fc", "gaf-adam", "gaf")
NOTES = ("LQF (paper) and GaF are by SGD, LQF (paper) with K-FAC; LQF FC is the closed form.",)


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every method over its grid."""
    return cells_of({m: m for m in METHOD_NAMES}, tasks, scale)


def summarise(results: Results) -> Summary:
    """Errors, as bars per data set."""
    return errors_in_bars(results, METHOD_NAMES, NOTES)
