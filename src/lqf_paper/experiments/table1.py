"""Test error of all methods on all data sets, and how much higher it is than that of ordinary fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence

from lqf_paper.methods.catalogue import METHODS
from lqf_paper.report.compare import (
    Best,
    best_of,
    cells_of,
    edge_sentence,
    error_table,
    error_values,
    errors_of,
    mirrored_error,
    relative,
    with_resized,
)
from lqf_paper.report.draw import boxes
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
NEAR = 0.02
"""Two errors within so much of each other are called close."""


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every method over its grid; those by mini-batches with the strongest augmentation too."""
    return cells_of(with_resized(METHOD_NAMES), tasks, scale)


def summarise(results: Results) -> Summary:
    """Errors, and a box plot of those relative to NLFT."""
    found = best_of(results, METHOD_NAMES)
    gaps = {METHODS[m].label: relative(found, m, "nlft") for m in METHOD_NAMES if m != "nlft"}
    apart = {m: differences(found, "lqf", m) for m in ("lqf-ours", "lqf-ours-avg", "lqf-solved")}
    return Summary(
        {"errors": error_values(found, results), "relative_to_nlft": gaps, "lqf_paper_minus_ours": apart},
        _table(found, results),
        lambda figure: boxes(figure, gaps, "error relative to NLFT, %"),
        (
            "The best of each method's grid by test error, as in the paper; LQF (ours) is one fit with its defaults, "
            "which choose pooling and views by leave-one-out; with resized crops it is the same fit with fixed views.",
            "All others are tested on the central crop. “Mirrored”: scores averaged over it and its mirror image, the "
            "best of the grid by that error.",
            *(closeness("lqf", m, d) for m, d in apart.items()),
            edge_sentence(found, results),
        ),
        (8.0, 4.5),
    )


def differences(found: Best, method: str, to: str) -> dict[str, float]:
    """Error minus error, per data set where both are known."""
    pairs = {name: (errors_of({name: row}, method)[0], errors_of({name: row}, to)[0]) for name, row in found.items()}
    return {name: e - r for name, (e, r) in pairs.items() if e is not None and r is not None}


def closeness(method: str, to: str, apart: dict[str, float]) -> str:
    """On which data sets a method is within `NEAR` of another, and by how many points they differ."""
    named = {name: f"{name} ({100 * d:+.1f})" for name, d in apart.items()}
    near = [named[name] for name, d in apart.items() if abs(d) <= NEAR + 1e-12]
    far = [named[name] for name, d in apart.items() if abs(d) > NEAR + 1e-12]
    points, other = f"{100 * NEAR:.0f} points", METHODS[to].label
    return (
        f"{METHODS[method].label} is within {points} of {other} on {', '.join(near) or 'no data set'}; "
        f"beyond {points} on {', '.join(far) or 'none'} (its error minus that of {other}, in points)."
    )


def _table(found: Best, results: Results) -> Table:
    """The errors, and below them those with mirrored views."""
    plain = error_table(found, METHOD_NAMES)
    more = [
        (f"{METHODS[m].label}, mirrored", *(bare_percent(_mirrored(results, name, m)) for name in found))
        for m in MIRRORED
    ]
    return Table(plain.columns, (*plain.rows, *more))


def _mirrored(results: Results, name: str, method: str) -> float | None:
    return mirrored_error(results.where(work="fit", data=name, method=method))
