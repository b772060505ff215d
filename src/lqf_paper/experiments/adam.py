"""Linear methods by Adam, compared with the same by SGD (with K-FAC for LQF) or in closed form (LQF FC)."""

from __future__ import annotations

from collections.abc import Sequence

from lqf_paper.report.compare import CROPS_ONLY, cells_of, compared
from lqf_paper.report.verdicts import Statement, near
from lqf_paper.report.winners import further_cells
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Results, Summary
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "Adam instead of SGD"
METHOD_NAMES = ("lqf-adam", "lqf", "lqf-fc-adam", "lqf-fc", "gaf-adam", "gaf")
NOTES = ("LQF (paper) and GaF are by SGD, LQF (paper) with K-FAC; LQF FC is the closed form.", CROPS_ONLY)
NEAR = 0.03
"""Errors so close to each other are called comparable here; the paper gives no bound."""
STATEMENTS = tuple(
    Statement(f"{text} within {100 * NEAR:.0f} points", f"{method}-adam", method, near(NEAR))
    for method, text in (
        ("lqf", "LQF by Adam and by K-FAC"),
        ("lqf-fc", "LQF FC by Adam and solved"),
        ("gaf", "GaF by Adam and by SGD"),
    )
)


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every method over its grid."""
    return cells_of({m: m for m in METHOD_NAMES}, tasks, scale)


def further(results: Results) -> list[Cell]:
    """Other seeds of the winners, and validation."""
    return further_cells(results, METHOD_NAMES)


def summarise(results: Results) -> Summary:
    """Errors, as points per data set."""
    return compared(results, METHOD_NAMES, STATEMENTS, NOTES)
