"""Leaky ReLU or ReLU under the same exact solver: which one leave-one-out prefers, and what the test images say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lqf_paper.report.compare import cells_of, compared
from lqf_paper.report.verdicts import LESS, Statement
from lqf_paper.report.winners import label
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Results, Summary, Table, bare_percent
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "Leaky-ReLU or ReLU"
METHOD_NAMES = ("lqf-leaky", "lqf-relu")
STATEMENTS = (Statement("Leaky-ReLU < ReLU", "lqf-leaky", "lqf-relu", LESS),)


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """One exact fit with either activation."""
    return cells_of({m: m for m in METHOD_NAMES}, tasks, scale)


def summarise(results: Results) -> Summary:
    """Out-of-sample errors on the training images, which decide, and test errors."""
    summary = compared(results, METHOD_NAMES, STATEMENTS, NOTES)
    left_out = {t.name: {m: _left_out(results, t.name, m) for m in METHOD_NAMES} for t in results.tasks}
    rows = [(f"{label(m)}, training images", *(bare_percent(of[m]) for of in left_out.values())) for m in METHOD_NAMES]
    columns = ("error, %", *summary.table.columns[1:])
    test = [(f"{name}, test images", *rest) for name, *rest in summary.table.rows]
    return replace(
        summary,
        values={**summary.values, "out_of_sample": left_out, "preferred": preferred(left_out)},
        table=Table(columns, (*rows, *test)),
        notes=(decision(left_out), *summary.notes),
    )


NOTES = (
    "LQF with average pooling and one view; solver, and the rule for head and ridge strengths, are the same. “Training "
    "images”: the error out of sample that the fit itself measures, from which no test image is seen. The weights are "
    "those of the ReLU network in both: the paper trains for one more epoch on ImageNet after the change.",
)


def _left_out(results: Results, data: str, method: str) -> float | None:
    found = results.where(work="fit", data=data, method=method)
    return found[0].result["chosen"].get("loo_error") if found else None


def preferred(left_out: dict[str, dict[str, float | None]]) -> dict[str, str]:
    """Data set -> the method with the lower error out of sample; only where they differ."""
    out: dict[str, str] = {}
    for name, of in left_out.items():
        leaky, relu = (of[m] for m in METHOD_NAMES)
        if leaky is not None and relu is not None and leaky != relu:
            out[name] = METHOD_NAMES[0] if leaky < relu else METHOD_NAMES[1]
    return out


def decision(left_out: dict[str, dict[str, Any]]) -> str:
    """What the training images say, in a sentence."""
    known = [of for of in left_out.values() if all(of[m] is not None for m in METHOD_NAMES)]
    if not known:
        return "No data set has an error out of sample with both activations."
    leaky = sum(1 for m in preferred(left_out).values() if m == METHOD_NAMES[0])
    relu = len(preferred(left_out)) - leaky
    mean = sum(of[METHOD_NAMES[0]] - of[METHOD_NAMES[1]] for of in known) / len(known)
    return (
        f"On the training images of {len(known)} data sets Leaky-ReLU has the lower error on {leaky}, ReLU on {relu}; "
        f"the mean difference is {100 * mean:+.2f} points."
    )
