"""LQF without the squared error, without K-FAC, without leaky activations; and around a probe head, and bilinear."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from lqf.paper.cells import Cell
from lqf.paper.compare import best_of, cells_of, error_table, error_values, relative
from lqf.paper.draw import boxes
from lqf.paper.experiment import Results, Summary
from lqf.paper.lab import Task
from lqf.paper.methods import METHODS
from lqf.paper.scale import Scale

TITLE = "what each part of LQF is worth"
REMOVED = {"lqf-no-mse": "MSE", "lqf-no-kfac": "K-FAC", "lqf-no-leaky": "Leaky-ReLU"}
METHOD_NAMES = ("lqf", *REMOVED, "lqf-probe", "b-lqf")


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every variant over the grid of LQF; without K-FAC with smaller rates too."""
    return cells_of({m: "lqf-no-kfac" if m == "lqf-no-kfac" else "lqf" for m in METHOD_NAMES}, tasks, scale)


def summarise(results: Results) -> Summary:
    """Errors relative to LQF, and the order of the parts by their median."""
    found = best_of(results, METHOD_NAMES)
    gaps = {m: relative(found, m, "lqf") for m in METHOD_NAMES if m != "lqf"}
    medians = {m: median(v) for m, v in gaps.items() if v}
    ranked = sorted((m for m in REMOVED if m in medians), key=lambda m: -medians[m])
    order = ", ".join(f"{REMOVED[m]} ({100 * medians[m]:+.0f} %)" for m in ranked)
    return Summary(
        {
            "errors": error_values(found, results),
            "relative_to_lqf": gaps,
            "median": medians,
            "order": [REMOVED[m] for m in ranked],
        },
        error_table(found, METHOD_NAMES),
        lambda figure: boxes(figure, {METHODS[m].label: v for m, v in gaps.items()}, "error relative to LQF, %"),
        (f"Median increase of the error where it is removed, the largest first: {order or 'not known'}.",),
    )
