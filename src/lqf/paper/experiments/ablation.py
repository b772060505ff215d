"""LQF without the squared error, without K-FAC, without leaky activations; and around a probe head, and bilinear."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from lqf.paper.cells import Cell
from lqf.paper.compare import best_of, cells_of, ends_told, error_table, error_values, relative
from lqf.paper.draw import boxes
from lqf.paper.experiment import Results, Summary
from lqf.paper.grid import GRIDS
from lqf.paper.lab import Task
from lqf.paper.methods import METHODS
from lqf.paper.scale import Scale

TITLE = "what each part of LQF is worth"
REMOVED = {"lqf-no-mse": "MSE", "lqf-no-kfac": "K-FAC", "lqf-no-leaky": "Leaky-ReLU"}
"""In the paper's order, the part that matters most first."""
METHOD_NAMES = ("lqf", *REMOVED, "lqf-probe", "b-lqf")
LEAKY_NOTE = (
    "The paper trains its network for one more epoch on ImageNet after its activations were made leaky. That is left "
    "out here: LQF sees the weights of the ReLU network under leaky activations, and what Leaky-ReLU is worth may come "
    "out too low."
)


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every variant over the grid of LQF; without K-FAC and without the squared error over rates of their own."""
    return cells_of({m: m if m in GRIDS else "lqf" for m in METHOD_NAMES}, tasks, scale)


def summarise(results: Results) -> Summary:
    """Errors relative to LQF, and the order of the parts by the mean over data sets."""
    found = best_of(results, METHOD_NAMES)
    gaps = {m: relative(found, m, "lqf") for m in METHOD_NAMES if m != "lqf"}
    means = {m: fmean(v) for m, v in gaps.items() if v}
    ranked = sorted((m for m in REMOVED if m in means), key=lambda m: -means[m])
    agrees = ranked == list(REMOVED) if len(ranked) == len(REMOVED) else None
    return Summary(
        {
            "errors": error_values(found, results),
            "relative_to_lqf": gaps,
            "mean": means,
            "order": [REMOVED[m] for m in ranked],
            "paper_order_confirmed": agrees,
        },
        error_table(found, METHOD_NAMES),
        lambda figure: boxes(figure, {METHODS[m].label: v for m, v in gaps.items()}, "error relative to LQF, %"),
        (verdict(means, gaps, agrees), LEAKY_NOTE, ends_told(found, results)),
    )


def verdict(means: dict[str, float], gaps: dict[str, list[float]], agrees: bool | None) -> str:
    """Whether the parts rank as in the paper, with the numbers."""
    paper = " > ".join(REMOVED.values())
    if agrees is None:
        unknown = ", ".join(REMOVED[m] for m in REMOVED if m not in means)
        return f"The paper's order, {paper}, cannot be judged: no data set has an error with and without {unknown}."
    ranked = sorted(REMOVED, key=lambda m: -means[m])
    numbers = ", ".join(f"{REMOVED[m]} ({100 * means[m]:+.0f} %)" for m in ranked)
    counts = sorted({len(gaps[m]) for m in REMOVED})
    sets = " to ".join(str(c) for c in (counts if len(counts) == 1 else (counts[0], counts[-1])))
    return (
        f"The paper's order, {paper}, is {'confirmed' if agrees else 'refuted'}: relative increase of the error where "
        f"a part is removed, mean over {sets} data set{'' if sets == '1' else 's'}, the largest first: {numbers}."
    )
