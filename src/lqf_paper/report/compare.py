"""Methods × data sets: cells over each method's grid, the best of each, a table, and errors relative to one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lqf_paper.methods.catalogue import params
from lqf_paper.report.draw import dots, panel_size
from lqf_paper.report.search_edges import edge_of
from lqf_paper.report.verdicts import HOW, NOT_TOLD, Statement, judge, verdict_table
from lqf_paper.report.winners import Winner, Winners, label, validated, validation_sentence, winners
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, Summary, Table, bare_percent, best
from lqf_paper.runner.grid import GRIDS, grid
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task


def cells_of(methods: Mapping[str, str | tuple[str, ...]], tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every method with all settings of its grids: method -> name of the grid, or names."""
    return [
        Cell("fit", task.name, params(method, scale, len(task.train), settings))
        for task in tasks
        for method, searched in methods.items()
        for name in ((searched,) if isinstance(searched, str) else searched)
        for settings in grid(name, scale.name)
    ]


CROPS_ONLY = (
    "Random crops alone are searched here; `table1` and `bilinear` try random resized crops too, so that a method's "
    "error may be lower there."
)


def with_resized(methods: Sequence[str]) -> dict[str, str | tuple[str, ...]]:
    """Every method with its grid, and with that of the strongest augmentation where it has one."""
    return {m: (m, f"{m}-resized") if f"{m}-resized" in GRIDS else m for m in methods}


def error_table(found: Winners, methods: Sequence[str]) -> Table:
    """Test errors in per cent, a row per method, the lowest in bold; of several runs, mean ± standard deviation."""
    errors = {m: errors_of(found, m) for m in methods}
    lowest = [min((e for e in column if e is not None), default=None) for column in zip(*errors.values(), strict=True)]
    rows = [
        (label(m), *(_shown(row[m], low) for row, low in zip(found.values(), lowest, strict=True))) for m in methods
    ]
    return Table(("test error, %", *found), tuple(rows))


def _shown(winner: Winner | None, lowest: float | None) -> str:
    if winner is None:
        return "–"
    shown = bare_percent(winner.error)
    more = "" if winner.deviation is None else f" ± {bare_percent(winner.deviation)}"
    return (f"**{shown}**" if winner.error == lowest else shown) + more


def error_values(found: Winners, results: Results) -> dict[str, Any]:
    """JSON values: errors, the settings that won, and the spread over each grid."""
    return {
        name: {m: _values(w, results.where(work="fit", data=name, method=m)) for m, w in row.items()}
        for name, row in found.items()
    }


def errors_of(found: Winners, method: str) -> list[float | None]:
    """The best error on every data set, the mean over its runs."""
    return [None if (w := row[method]) is None else w.error for row in found.values()]


def winners_at_edges(found: Winners, results: Results) -> list[str]:
    """Winners whose rate is the smallest or the largest that was tried in this way, and no other was as good."""
    out = []
    for name, row in found.items():
        for m, w in row.items():
            if w is not None and edge_of(w.chosen, results.where(work="fit", data=name, method=m), "learning_rate"):
                out.append(f"{label(m)} on {name} ({w.chosen.params['settings']['learning_rate']:g})")
    return out


def edge_sentence(found: Winners, results: Results) -> str:
    """`winners_at_edges` as a sentence."""
    ends = winners_at_edges(found, results)
    if not ends:
        return "No winner has the smallest or the largest rate that was tried for it."
    return f"At an end of the rates that were tried, so that a better one may lie beyond: {', '.join(ends)}."


def runs_sentence(found: Winners) -> list[str]:
    """How many runs the winners have, where any has more than one, and how many of these diverged."""
    counts = {len(w.runs) for row in found.values() for w in row.values() if w is not None}
    if not counts or max(counts) == 1:
        return []
    lost = [f"{label(m)} on {name} ({w.lost})" for name, row in found.items() for m, w in row.items() if w and w.lost]
    more = f" Repeats that diverged and do not count: {', '.join(lost)}." if lost else ""
    return [
        f"Winners were run with up to {max(counts)} seeds, the first of which the search had: mean ± standard "
        f"deviation where there are several.{more}"
    ]


def compared(
    results: Results, methods: Sequence[str], statements: Sequence[Statement], notes: Sequence[str]
) -> Summary:
    """The best error of every method, as tables and as points with intervals per data set."""
    found = winners(results, methods)
    notes = (*notes, *runs_sentence(found), edge_sentence(found, results), *how_judged(statements))
    values = {"errors": error_values(found, results), **extra_values(results, found, methods, statements)}
    tables = extra_tables(results, found, methods, statements)
    shown = list(methods)
    return Summary(
        values,
        error_table(found, methods),
        lambda figure: draw_errors(figure, found, shown),
        notes,
        size=size_of(found, methods),
        tables=tables,
    )


def how_judged(statements: Sequence[Statement]) -> list[str]:
    """Sentences below a table of verdicts."""
    return [HOW, NOT_TOLD] if statements else []


def extra_values(
    results: Results, found: Winners, methods: Sequence[str], statements: Sequence[Statement]
) -> dict[str, Any]:
    """JSON values of `extra_tables`."""
    values: dict[str, Any] = {"statements": [j.values() for j in judge(statements, found)]}
    if validated(results):
        values["errors_by_validation"] = error_values(winners(results, methods, "validation"), results)
    return values


def extra_tables(
    results: Results, found: Winners, methods: Sequence[str], statements: Sequence[Statement]
) -> tuple[tuple[str, Table], ...]:
    """Verdicts; and where settings were validated, errors and verdicts of those chosen without the test images."""
    tables = []
    if statements:
        tables.append(("Statements, with settings chosen by test error:", _verdicts(statements, found)))
    if validated(results):
        honest = winners(results, methods, "validation")
        tables.append((validation_sentence(), error_table(honest, methods)))
        if statements:
            heading = "Statements, with settings chosen on the validation part:"
            tables.append((heading, _verdicts(statements, honest)))
    return tuple((heading, table) for heading, table in tables if table.rows)


def _verdicts(statements: Sequence[Statement], found: Winners) -> Table:
    return verdict_table(judge(statements, found), list(found))


def draw_errors(figure: Any, found: Winners, methods: Sequence[str]) -> None:
    """A panel per data set, a row per method."""
    rows = {name: {label(m): w.interval if (w := row[m]) else None for m in methods} for name, row in found.items()}
    dots(figure, rows, "test error, % (dotted: the lowest)")


def size_of(found: Winners, methods: Sequence[str]) -> tuple[float, float]:
    """Of `draw_errors`, in inches."""
    shown = [m for m in methods if any(row[m] for row in found.values())]
    width, height = panel_size(len(found), 2.4, 0.8 + 0.26 * len(shown))
    return width + 1.8, height


def relative(found: Winners, method: str, to: str) -> dict[str, float]:
    """(error − reference)/reference of every data set where both are known and the reference is not zero."""
    pairs = {name: (row[method], row[to]) for name, row in found.items()}
    return {name: (w.error - r.error) / r.error for name, (w, r) in pairs.items() if w and r and r.error}


def _values(found: Winner | None, tried: Sequence[Done]) -> dict[str, Any]:
    errors = [d.result["test_error"] for d in tried]
    known = sorted(e for e in errors if e is not None)
    chosen = None if found is None else found.chosen
    return {
        "test_error": None if found is None else found.error,
        "interval": None if found is None else found.interval[1:],
        "runs": [] if found is None else [d.result["test_error"] for d in found.runs],
        "runs_lost": 0 if found is None else found.lost,
        "test_error_mirrored": mirrored_error(tried),
        "settings": None if chosen is None else chosen.params["settings"],
        "chosen": None if chosen is None else chosen.result["chosen"],
        "tried": len(tried),
        "diverged": sum(e is None for e in errors),
        "worst": known[-1] if known else None,
        "fit_seconds": None if chosen is None else chosen.result["fit_seconds"],
        "seconds": sum(d.seconds for d in tried),
    }


def mirrored_error(tried: Sequence[Done]) -> float | None:
    """The lowest error, over all settings, of scores averaged over central views and their mirror images."""
    found = best(tried, "test_error_mirrored")
    return None if found is None else found.result["test_error_mirrored"]
