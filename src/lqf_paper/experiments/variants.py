"""What of the paper's own method a reader may take another way: damping, head, λ, crops, number format; each alone."""

from __future__ import annotations

from collections.abc import Sequence

from lqf_paper.report.compare import cells_of, compared
from lqf_paper.report.winners import further_cells
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Results, Summary
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "the paper's method, taken another way"
METHOD_NAMES = (
    "lqf",
    "lqf-trace",
    "lqf-central",
    "lqf-small-head",
    "lqf-decay",
    "lqf-bf16",
    "lqf-solved",
    "lqf-fc-sgd",
    "lqf-fc-paper",
    "lqf-fc",
    "fc",
    "fc-decay",
    "gaf",
    "gaf-probe",
)
NOTES = (
    "LQF (paper): K-FAC damped factor by factor, a head of standard deviation 1/√p, λ = 1e-4, random crops, TF32 "
    "products in training and test. Each variant changes one of these: P = A + γI; the central crop alone; a head of "
    "0.01, as ordinary fine-tuning begins with; λ from 1e-3 to 1; bfloat16 products in training and test.",
    "“The paper's λ”: 1e-4 and 1e-5 alone; LQF FC chooses among these and leave-one-out's. FC and LQF FC by K-FAC SGD "
    "see the same random crops. GaF around a probe head begins with the closed-form head, as its own paper does.",
)


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every variant over its grid."""
    return cells_of({m: m for m in METHOD_NAMES}, tasks, scale)


def further(results: Results) -> list[Cell]:
    """Other seeds of the winners, and validation."""
    return further_cells(results, METHOD_NAMES)


def summarise(results: Results) -> Summary:
    """Errors, as points per data set."""
    return compared(results, METHOD_NAMES, (), NOTES)
