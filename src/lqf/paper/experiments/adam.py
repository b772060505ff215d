"""Linear methods by Adam, beside the same by SGD (with K-FAC for LQF) or in closed form (LQF FC)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lqf.paper.cells import Cell
from lqf.paper.compare import best_of, cells_of, error_table, error_values, errors_of
from lqf.paper.draw import bars
from lqf.paper.experiment import Results, Summary
from lqf.paper.lab import Task
from lqf.paper.methods import METHODS
from lqf.paper.scale import Scale

TITLE = "Adam instead of SGD"
METHOD_NAMES = ("lqf-adam", "lqf", "lqf-fc-adam", "lqf-fc", "gaf-adam", "gaf")


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every method over its grid."""
    return cells_of({m: m for m in METHOD_NAMES}, tasks, scale)


def summarise(results: Results) -> Summary:
    """Errors, as bars per data set."""
    found = best_of(results, METHOD_NAMES)

    def draw(figure: Any) -> None:
        bars(
            figure.subplots(),
            list(found),
            {METHODS[m].label: errors_of(found, m) for m in METHOD_NAMES},
            label="test error, %",
        )

    notes = ("LQF (paper) and GaF are by SGD, LQF (paper) with K-FAC; LQF FC is the closed form.",)
    return Summary({"errors": error_values(found, results)}, error_table(found, METHOD_NAMES), draw, notes)
