"""Bilinear against average pooling, for ordinary fine-tuning (MPN-COV) and for LQF."""

from __future__ import annotations

from collections.abc import Sequence

from lqf_paper.report.compare import cells_of, compared, with_resized
from lqf_paper.report.verdicts import LESS, Statement
from lqf_paper.report.winners import further_cells
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Results, Summary
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "bilinear pooling"
METHOD_NAMES = ("nlft", "b-nlft", "b-lqf-ours", "b-lqf", "lqf-ours", "lqf", "gaf")
NOTES = (
    "LQF (ours) chooses its pooling by leave-one-out; B-LQF (ours) always pools bilinearly.",
    "The best of each method's grid by test error, on the central crop; ours are one fit each, tested on the views "
    "that it has chosen.",
)
STATEMENTS = (
    Statement("bilinear pooling helps LQF: B-LQF (paper) < LQF (paper)", "b-lqf", "lqf", LESS),
    Statement("bilinear pooling helps NLFT: MPN-COV < NLFT", "b-nlft", "nlft", LESS),
    Statement("B-LQF (paper) < NLFT", "b-lqf", "nlft", LESS),
)


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every method over its grid; those by mini-batches with the strongest augmentation too."""
    return cells_of(with_resized(METHOD_NAMES), tasks, scale)


def further(results: Results) -> list[Cell]:
    """Other seeds of the winners, and validation."""
    return further_cells(results, METHOD_NAMES)


def summarise(results: Results) -> Summary:
    """Errors, as points per data set."""
    return compared(results, METHOD_NAMES, STATEMENTS, NOTES)
