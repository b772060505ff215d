"""Methods × data sets: cells over each method's grid, the best of each, a table, and errors relative to one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lqf_paper.methods.catalogue import METHODS, params
from lqf_paper.report.draw import bars
from lqf_paper.report.search_edges import edge_of
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, Summary, Table, bare_percent, best
from lqf_paper.runner.grid import GRIDS, grid
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

Best = dict[str, dict[str, Done | None]]
"""Data set -> method -> its best cell."""


def cells_of(
    methods: Mapping[str, str | tuple[str, ...]], tasks: Sequence[Task], scale: Scale, seeds: int = 1
) -> list[Cell]:
    """Every method with all settings of its grids: method -> name of the grid, or names."""
    return [
        Cell("fit", task.name, params(method, scale, len(task.train), settings, seed=seed))
        for task in tasks
        for method, searched in methods.items()
        for name in ((searched,) if isinstance(searched, str) else searched)
        for settings in grid(name, scale.name)
        for seed in range(seeds)
    ]


def with_resized(methods: Sequence[str]) -> dict[str, str | tuple[str, ...]]:
    """Every method with its grid, and with that of the strongest augmentation where it has one."""
    return {m: (m, f"{m}-resized") if f"{m}-resized" in GRIDS else m for m in methods}


def best_of(results: Results, methods: Sequence[str]) -> Best:
    """The best cell of every method on every data set."""
    return {t.name: {m: best(results.where(work="fit", data=t.name, method=m)) for m in methods} for t in results.tasks}


def error_table(found: Best, methods: Sequence[str]) -> Table:
    """Test errors in per cent, a row per method, the lowest of each data set in bold."""
    errors = {m: errors_of(found, m) for m in methods}
    lowest = [min((e for e in column if e is not None), default=None) for column in zip(*errors.values(), strict=True)]
    rows = [(METHODS[m].label, *map(_bold, row, lowest)) for m, row in errors.items()]
    return Table(("test error, %", *found), tuple(rows))


def _bold(error: float | None, lowest: float | None) -> str:
    return f"**{bare_percent(error)}**" if error is not None and error == lowest else bare_percent(error)


def error_values(found: Best, results: Results) -> dict[str, Any]:
    """JSON values: errors, the settings that won, and the spread over each grid."""
    return {
        name: {m: _values(d, results.where(work="fit", data=name, method=m)) for m, d in row.items()}
        for name, row in found.items()
    }


def errors_of(found: Best, method: str) -> list[float | None]:
    """The best error on every data set."""
    return [_error(row[method]) for row in found.values()]


def winners_at_edges(found: Best, results: Results) -> list[str]:
    """Winners whose rate is the smallest or the largest that was tried in this way, and no other was as good."""
    out = []
    for name, row in found.items():
        for m, d in row.items():
            if d is not None and edge_of(d, results.where(work="fit", data=name, method=m), "learning_rate"):
                out.append(f"{METHODS[m].label} on {name} ({d.params['settings']['learning_rate']:g})")
    return out


def edge_sentence(found: Best, results: Results) -> str:
    """`winners_at_edges` as a sentence."""
    ends = winners_at_edges(found, results)
    if not ends:
        return "No winner has the smallest or the largest rate that was tried for it."
    return f"At an end of the rates that were tried, so that a better one may lie beyond: {', '.join(ends)}."


def errors_in_bars(results: Results, methods: Sequence[str], notes: tuple[str, ...]) -> Summary:
    """The best error of every method, as a table and as bars per data set."""
    found = best_of(results, methods)

    def draw(figure: Any) -> None:
        heights = {METHODS[m].label: errors_of(found, m) for m in methods}
        bars(figure.subplots(), list(found), heights, label="test error, %")

    notes = (*notes, edge_sentence(found, results))
    return Summary({"errors": error_values(found, results)}, error_table(found, methods), draw, notes)


def relative(found: Best, method: str, to: str) -> dict[str, float]:
    """(error − reference)/reference of every data set where both are known and the reference is not zero."""
    pairs = {name: (_error(row[method]), _error(row[to])) for name, row in found.items()}
    return {name: (e - r) / r for name, (e, r) in pairs.items() if e is not None and r}


def _values(found: Done | None, tried: Sequence[Done]) -> dict[str, Any]:
    errors = [d.result["test_error"] for d in tried]
    known = sorted(e for e in errors if e is not None)
    return {
        "test_error": None if found is None else found.result["test_error"],
        "test_error_mirrored": mirrored_error(tried),
        "settings": None if found is None else found.params["settings"],
        "chosen": None if found is None else found.result["chosen"],
        "tried": len(tried),
        "diverged": sum(e is None for e in errors),
        "worst": known[-1] if known else None,
        "fit_seconds": None if found is None else found.result["fit_seconds"],
        "seconds": sum(d.seconds for d in tried),
    }


def mirrored_error(tried: Sequence[Done]) -> float | None:
    """The lowest error, over all settings, of scores averaged over central views and their mirror images."""
    found = best(tried, "test_error_mirrored")
    return None if found is None else found.result["test_error_mirrored"]


def _error(done: Done | None) -> float | None:
    return None if done is None else done.result["test_error"]
