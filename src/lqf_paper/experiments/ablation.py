"""LQF without the squared error, without K-FAC, without leaky activations; and around a probe head, and bilinear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from lqf_paper.methods.catalogue import METHODS
from lqf_paper.report.compare import Best, best_of, cells_of, edge_sentence, error_table, error_values, relative
from lqf_paper.report.draw import boxes
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Results, Summary
from lqf_paper.runner.grid import GRIDS
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

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
    gaps = {METHODS[m].label: relative(found, m, "lqf") for m in METHOD_NAMES if m != "lqf"}
    worth = worths(found)
    means = {part: fmean(w[part] for w in worth.values()) for part in REMOVED.values()} if worth else {}
    agrees = ranked(means) == list(REMOVED.values()) if means else None
    return Summary(
        {
            "errors": error_values(found, results),
            "relative_to_lqf": gaps,
            "worth": worth,
            "mean": means,
            "order": ranked(means),
            "paper_order_confirmed": agrees,
        },
        error_table(found, METHOD_NAMES),
        lambda figure: boxes(figure, gaps, "error relative to LQF, %"),
        (verdict(worth, means), LEAKY_NOTE, edge_sentence(found, results)),
    )


def worths(found: Best) -> dict[str, dict[str, float]]:
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


def verdict(worth: Mapping[str, dict[str, float]], means: dict[str, float]) -> str:
    """Whether the parts rank as in the paper, with the numbers."""
    paper = " > ".join(REMOVED.values())
    if not worth:
        return f"The paper's order, {paper}, cannot be judged: no data set has an error with and without every part."
    confirmed = "confirmed" if ranked(means) == list(REMOVED.values()) else "refuted"
    per_set = "; ".join(f"{name}: {_listed(w)}" for name, w in worth.items())
    sets = "1 data set" if len(worth) == 1 else f"{len(worth)} data sets"
    return (
        f"The paper's order, {paper}, is {confirmed}: relative increase of the error where a part is removed, the "
        f"largest first, mean over {sets}: {_listed(means)}. {per_set}."
    )


def _listed(worth: Mapping[str, float]) -> str:
    return ", ".join(f"{part} ({100 * worth[part]:+.0f} %)" for part in ranked(worth))
