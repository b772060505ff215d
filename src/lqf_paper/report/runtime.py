"""Seconds to the result: a whole search against one fit, of cells that were measured alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lqf_paper.report.winners import label
from lqf_paper.runner.experiment import Done, Results, Table, best

HEADING = "Seconds to the result, the whole search / the winner alone, where all cells of a search were measured alone:"


def runtime_table(results: Results, methods: Iterable[str]) -> Table:
    """A row per method, a column per data set; "–" where a cell is missing or shared its GPU with another process."""
    names = [t.name for t in results.tasks]
    rows = [(label(m), *(_shown(results, name, m) for name in names)) for m in methods]
    return Table(("seconds", *names), tuple(row for row in rows if any(c != "–" for c in row[1:])))


def runtime_note(results: Results) -> str:
    """How many cells say nothing about time, and what a cell's time is."""
    shared = sum(d.side_by_side > 1 for d in results)
    gaps = f" {shared} of {len(results.done)} cells were not measured alone and are left out." if shared else ""
    return (
        "Seconds are those of whole cells, with the errors on the test images; a search's features and K-FAC are made "
        f"in the first of its cells.{gaps}"
    )


def _shown(results: Results, name: str, method: str) -> str:
    done = results.where(work="fit", data=name, method=method)
    wanted = [c for c in results.wanted if c.data == name and c.params.get("method") == method]
    winner = best(done)
    if winner is None or len(done) < len(wanted) or not _alone(done):
        return "–"
    total = sum(d.seconds for d in done)
    return f"{total:.0f} / {winner.seconds:.0f}" if len(done) > 1 else f"{total:.0f}"


def _alone(done: Sequence[Done]) -> bool:
    return all(d.side_by_side == 1 for d in done)
