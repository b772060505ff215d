"""Test error of all methods on all data sets, and how much higher it is than that of ordinary fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from lqf_paper.report.compare import cells_of, compared, mirrored_error, relative, with_resized
from lqf_paper.report.draw import relative_points
from lqf_paper.report.paired import relative_gaps
from lqf_paper.report.runtime import HEADING, runtime_note, runtime_table
from lqf_paper.report.verdicts import LESS, MORE, Statement, near
from lqf_paper.report.winners import further_cells, label, validated, winners
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Results, Summary, Table, bare_percent
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "linear and non-linear fine-tuning"
METHOD_NAMES = (
    "nlft",
    "nlft-mse",
    "lqf-ours",
    "lqf-ours-crops",
    "lqf-ours-avg",
    "lqf-solved",
    "lqf",
    "lqf-fc",
    "gaf",
    "fc",
)
MIRRORED = ("nlft", "nlft-mse", "lqf")
"""Shown with scores averaged over mirror images too, as LQF (ours) may choose to do."""
MEDIANS = {"lqf": 0.12, "lqf-fc": 0.42, "gaf": 0.47, "fc": 0.71}
"""Of the error relative to NLFT over the paper's tasks (its figure 1)."""
REPORTED: dict[str, dict[str, float]] = {
    "cub200_40cls": {"nlft": 19.6, "lqf": 24.0, "lqf-fc": 29.1, "gaf": 28.4, "fc": 29.2},
    "oxford_flowers102": {"nlft": 7.1, "lqf": 7.1, "lqf-fc": 9.7, "gaf": 13.3, "fc": 13.6},
    "chest_xray_kermany": {"nlft": 4.6, "lqf": 7.1, "lqf-fc": 8.3, "gaf": 9.5, "fc": 11.2},
    "stanford_cars_40cls": {"nlft": 9.6, "lqf": 27.1, "lqf-fc": 39.2, "gaf": 39.4, "fc": 47.3},
}
"""The paper's errors in per cent, on the whole of the data sets whose subsets have these names."""
NEAR = 0.02
"""Two errors within so much of each other are called close."""
STATEMENTS = (
    Statement("LQF (paper) is above NLFT", "lqf", "nlft", MORE),
    Statement(f"LQF (paper) is at most {100 * NEAR:.0f} points above NLFT", "lqf", "nlft", (-math.inf, NEAR)),
    Statement("LQF (paper) < GaF", "lqf", "gaf", LESS),
    Statement("LQF (paper) < LQF FC", "lqf", "lqf-fc", LESS),
    Statement("LQF (paper) < FC", "lqf", "fc", LESS),
    Statement("LQF FC < GaF", "lqf-fc", "gaf", LESS),
    Statement("LQF FC < FC", "lqf-fc", "fc", LESS),
    Statement("GaF < FC", "gaf", "fc", LESS),
)
OWN = (
    *(
        Statement(f"LQF (paper) within {100 * NEAR:.0f} points of {label(m)}", "lqf", m, near(NEAR))
        for m in ("lqf-ours", "lqf-ours-avg", "lqf-solved")
    ),
    Statement("LQF (ours) < NLFT", "lqf-ours", "nlft", LESS),
    Statement("LQF (ours) < NLFT, squared error", "lqf-ours", "nlft-mse", LESS),
)
"""Not the paper's: how its mode and ours compare."""


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every method over its grid; those by mini-batches with the strongest augmentation too."""
    return cells_of(with_resized(METHOD_NAMES), tasks, scale)


def further(results: Results) -> list[Cell]:
    """Other seeds of the winners, and validation."""
    return further_cells(results, METHOD_NAMES)


def summarise(results: Results) -> Summary:
    """Errors; those relative to NLFT with their medians; what the paper says of them; what they took."""
    found = winners(results, METHOD_NAMES)
    summary = compared(
        results,
        METHOD_NAMES,
        (*STATEMENTS, *OWN),
        (
            "The best of each method's grid by test error, as in the paper; LQF (ours) is one fit with its defaults, "
            "which choose pooling and views by leave-one-out; with resized crops it is the same fit with fixed views.",
            "All others are tested on the central crop. “Mirrored”: scores averaged over it and its mirror image, the "
            "best of the grid by that error, of the first seed.",
        ),
    )
    gaps = {label(m): relative_gaps(found, m, "nlft") for m in METHOD_NAMES if m != "nlft"}
    ways = {"test": found}
    if validated(results):
        ways["validation"] = winners(results, METHOD_NAMES, "validation")
    medians = {
        way: {m: _median(relative(of, m, "nlft")) for m in METHOD_NAMES if m != "nlft"} for way, of in ways.items()
    }
    reported = {label(m): share for m, share in MEDIANS.items()}
    tables = (
        *_reported(list(found)),
        ("Error relative to NLFT, the median over the data sets:", _medians(medians)),
        *summary.tables,
    )
    return replace(
        summary,
        values={
            **summary.values,
            "relative_to_nlft": {name: {d: g[0] for d, g in of.items()} for name, of in gaps.items()},
            "median_relative_to_nlft": medians,
        },
        table=_with_mirrored(summary.table, results),
        tables=(*tables, *([(HEADING, times)] if (times := runtime_table(results, METHOD_NAMES)).rows else [])),
        draw=lambda figure: relative_points(figure, gaps, "error relative to NLFT, %", reported),
        notes=(*summary.notes, runtime_note(results)),
        size=(8.0, 1.6 + 0.5 * len(METHOD_NAMES)),
    )


def _median(values: dict[str, float]) -> float | None:
    return median(values.values()) if values else None


def _medians(medians: dict[str, dict[str, float | None]]) -> Table:
    """A row per method: the paper's median, and ours, settings chosen by either way."""

    def shown(share: float | None) -> str:
        return "–" if share is None else f"{100 * share:+.0f} %"

    rows = [
        (label(m), shown(MEDIANS.get(m)), *(shown(of[m]) for of in medians.values()))
        for m in METHOD_NAMES
        if m != "nlft"
    ]
    return Table(("method", "the paper", *(f"here, chosen by {way} error" for way in medians)), tuple(rows))


def _reported(names: Sequence[str]) -> list[tuple[str, Table]]:
    """What the paper has for these data sets; empty where it has none of them."""
    known = [n for n in names if n in REPORTED]
    rows = [(label(m), *(bare_percent(REPORTED[n][m] / 100) for n in known)) for m in ("nlft", *MEDIANS)]
    return (
        [("The paper's own errors, on the whole data sets:", Table(("test error, %", *known), tuple(rows)))]
        if known
        else []
    )


def _with_mirrored(plain: Table, results: Results) -> Table:
    """The errors, and below them those with mirrored views."""
    more = [
        (f"{label(m)}, mirrored", *(bare_percent(_mirrored(results, name, m)) for name in plain.columns[1:]))
        for m in MIRRORED
    ]
    return Table(plain.columns, (*plain.rows, *more))


def _mirrored(results: Results, name: str, method: str) -> float | None:
    return mirrored_error(results.where(work="fit", data=name, method=method))
