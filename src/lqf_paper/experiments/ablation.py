"""LQF without the squared error, without K-FAC, without leaky activations; and around a probe head, and bilinear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from lqf_paper.report.compare import CROPS_ONLY, cells_of, compared, relative
from lqf_paper.report.draw import relative_points
from lqf_paper.report.paired import relative_gaps
from lqf_paper.report.verdicts import MORE, Judged, Statement, judge
from lqf_paper.report.winners import Winners, further_cells, label, winners
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Results, Summary
from lqf_paper.runner.grid import GRIDS
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "what each part of LQF is worth"
REMOVED = {"lqf-no-mse": "MSE", "lqf-no-kfac": "K-FAC", "lqf-no-leaky": "Leaky-ReLU"}
"""In the paper's order, the part that matters most first."""
METHOD_NAMES = ("lqf", *REMOVED, "lqf-probe", "b-lqf")
WORTH = tuple(Statement(f"without {part} the error is higher", m, "lqf", MORE) for m, part in REMOVED.items())
ORDER = tuple(
    Statement(f"{REMOVED[more]} is worth more than {REMOVED[less]}", more, less, MORE)
    for more, less in zip(list(REMOVED), list(REMOVED)[1:], strict=False)
)
LEAKY_NOTE = (
    "The paper trains its network for one more epoch on ImageNet after its activations were made leaky. That is left "
    "out here: LQF sees the weights of the ReLU network under leaky activations, and what Leaky-ReLU is worth may come "
    "out too low."
)


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every variant over the grid of LQF; without K-FAC and without the squared error over rates of their own."""
    return cells_of({m: m if m in GRIDS else "lqf" for m in METHOD_NAMES}, tasks, scale)


def further(results: Results) -> list[Cell]:
    """Other seeds of the winners, and validation."""
    return further_cells(results, METHOD_NAMES)


def summarise(results: Results) -> Summary:
    """Errors relative to LQF, what every part is worth, and their order."""
    found = winners(results, METHOD_NAMES)
    summary = compared(results, METHOD_NAMES, (*WORTH, *ORDER), ())
    worth = worths(found)
    means = {part: fmean(w[part] for w in worth.values()) for part in REMOVED.values()} if worth else {}
    whole = {name: row for name, row in found.items() if name in worth}
    judged = judge((*WORTH, *ORDER), whole)
    gaps = {label(m): relative_gaps(found, m, "lqf") for m in METHOD_NAMES if m != "lqf"}
    values = {
        "relative_to_lqf": {name: {d: g[0] for d, g in of.items()} for name, of in gaps.items()},
        "worth": worth,
        "mean": means,
        "order": ranked(means),
        "paper_order": order(judged) if worth else None,
    }
    return replace(
        summary,
        values={**summary.values, **values},
        draw=lambda figure: relative_points(figure, gaps, "error relative to LQF (paper), %"),
        notes=(verdict_sentence(worth, means, judged), LEAKY_NOTE, CROPS_ONLY, *summary.notes),
        size=(8.0, 3.6),
    )


def worths(found: Winners) -> dict[str, dict[str, float]]:
    """Data set -> part -> relative increase of the error without it; only data sets where all of them are known."""
    gaps = {part: relative(found, m, "lqf") for m, part in REMOVED.items()}
    return {
        name: {part: gap[name] for part, gap in gaps.items()}
        for name in found
        if all(name in gap for gap in gaps.values())
    }


def ranked(worth: Mapping[str, float]) -> list[str]:
    """Parts, the one that is worth most first."""
    return sorted(worth, key=lambda part: -worth[part])


def order(judged: Sequence[Judged]) -> str:
    """The paper's order with its sign: all parts help, and each more than the next.

    Confirmed where every one of these statements is, contradicted where one of them is; by means over data sets.
    """
    verdicts = {j.overall for j in judged}
    if verdicts == {"confirmed"}:
        return "confirmed"
    return "contradicted" if "contradicted" in verdicts else "not confirmed"


def verdict_sentence(worth: Mapping[str, dict[str, float]], means: dict[str, float], judged: Sequence[Judged]) -> str:
    """Whether the parts help and rank as in the paper, with the numbers."""
    paper = " > ".join(REMOVED.values())
    if not worth:
        return f"The paper's order, {paper}, cannot be judged: no data set has an error with and without every part."
    per_set = "; ".join(f"{name}: {_listed(w)}" for name, w in worth.items())
    sets = "1 data set" if len(worth) == 1 else f"{len(worth)} data sets"
    each = ", ".join(f"{j.statement.text}: {j.overall}" for j in judged)
    return (
        f"The paper's order, {paper}, each part being worth something, is {order(judged)} by the intervals of the mean "
        f"differences ({each}). Relative increase of the error where a part is removed, the largest first, mean over "
        f"{sets}: {_listed(means)}. {per_set}."
    )


def _listed(worth: Mapping[str, float]) -> str:
    return ", ".join(f"{part} ({100 * worth[part]:+.0f} %)" for part in ranked(worth))
