"""Test error of all methods on all data sets, and how much higher it is than that of ordinary fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence

from lqf.paper.cells import Cell
from lqf.paper.compare import best_of, cells_of, error_table, error_values, relative
from lqf.paper.draw import boxes
from lqf.paper.experiment import Results, Summary
from lqf.paper.lab import Task
from lqf.paper.methods import METHODS
from lqf.paper.scale import Scale

TITLE = "linear and non-linear fine-tuning"
METHOD_NAMES = ("nlft", "lqf-ours", "lqf", "lqf-fc", "gaf", "fc")


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every method over its grid."""
    return cells_of({m: m for m in METHOD_NAMES}, tasks, scale)


def summarise(results: Results) -> Summary:
    """Errors, and a box plot of those relative to NLFT."""
    found = best_of(results, METHOD_NAMES)
    gaps = {METHODS[m].label: relative(found, m, "nlft") for m in METHOD_NAMES if m != "nlft"}
    return Summary(
        {"errors": error_values(found, results), "relative_to_nlft": gaps},
        error_table(found, METHOD_NAMES),
        lambda figure: boxes(figure, gaps, "error relative to NLFT, %"),
        ("The best of each method's grid by test error, as in the paper; LQF (ours) is one fit with its defaults.",),
    )
