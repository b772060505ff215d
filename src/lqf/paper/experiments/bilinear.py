"""Bilinear against average pooling, for ordinary fine-tuning (MPN-COV) and for LQF."""

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

TITLE = "bilinear pooling"
METHOD_NAMES = ("nlft", "b-nlft", "b-lqf-ours", "b-lqf", "lqf-ours", "lqf", "gaf")


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

    return Summary(
        {"errors": error_values(found, results)},
        error_table(found, METHOD_NAMES),
        draw,
        (
            "LQF (ours) chooses its pooling by leave-one-out; B-LQF (ours) is told to pool bilinearly.",
            "The best of each method's grid by test error; ours are one fit each.",
        ),
    )
