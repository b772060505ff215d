"""What an experiment is: a list of cells, and how their results become values, a table and a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from lqf.utils.text import percent
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.registry import WORKS
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task


@dataclass(frozen=True)
class Done:
    """A finished cell.

    Attributes:
        cell: what was to be done.
        result: what its work returned.
        seconds: what it took.
        hardware: where.
        side_by_side: how many processes computed cells when it began, its own among them.
        earlier: whether it was computed before defaults changed that it does not name (`Work.earlier`).
    """

    cell: Cell
    result: dict[str, Any]
    seconds: float
    hardware: dict[str, Any] = field(default_factory=dict)
    side_by_side: int = 1
    earlier: bool = False

    @property
    def params(self) -> dict[str, Any]:
        """Of the cell, as it was written."""
        return dict(self.cell.params)

    @property
    def completed(self) -> dict[str, Any]:
        """Of the cell, with all defaults."""
        return WORKS[self.cell.work].complete(self.cell.params)["params"]


@dataclass(frozen=True)
class Results:
    """The finished cells of an experiment, in its order.

    Attributes:
        tasks: the data sets.
        scale: of the run.
        done: the finished cells.
        wanted: all cells; the others are missing.
        failed: of the missing ones, those that could not be computed, and why.
        further: finished cells beyond the search: its winners with other seeds, settings judged by validation.
        wanted_further: all of those.
    """

    tasks: Sequence[Task]
    scale: Scale
    done: Sequence[Done]
    wanted: Sequence[Cell] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    further: Sequence[Done] = ()
    wanted_further: Sequence[Cell] = ()

    @property
    def every(self) -> list[Done]:
        """All finished cells."""
        return [*self.done, *self.further]

    def __iter__(self) -> Iterator[Done]:
        return iter(self.done)

    @property
    def counted(self) -> str:
        """How many cells there are: "12 cells", or "7 of 12 cells" where some are missing."""
        done, n = len(self.every), len(self.wanted) + len(self.wanted_further)
        return f"{done} cells" if done >= n else f"{done} of {n} cells"

    def whole(self) -> Results:
        """Only the data sets all of whose cells are there."""
        there = {id(d.cell) for d in self.done}
        short = {c.data for c in self.wanted if id(c) not in there}
        tasks = [t for t in self.tasks if t.name not in short]
        done, further = ([d for d in cells if d.cell.data not in short] for cells in (self.done, self.further))
        return replace(self, tasks=tasks, done=done, further=further)

    def hardware(self) -> dict[str, Any]:
        """What all cells were computed on, by the last one of them: all devices, and the days from first to last."""
        machines = [d.hardware for d in self.every if d.hardware]
        last = max(machines, key=lambda h: h["date"])
        devices, days = dict.fromkeys(h["device"] for h in machines), sorted({h["date"] for h in machines})
        return {**last, "device": ", ".join(devices), "date": " to ".join(dict.fromkeys((days[0], days[-1])))}

    def where(self, *, work: str | None = None, data: str | None = None, **params: Any) -> list[Done]:
        """Cells of this work, of this data set and with these parameters."""
        return [
            d
            for d in self.done
            if (work is None or d.cell.work == work)
            and (data is None or d.cell.data == data)
            and all(d.params.get(k) == v for k, v in params.items())
        ]


def best(cells: Sequence[Done], of: str = "test_error") -> Done | None:
    """The cell with the lowest value; those without one (a run that diverged) do not count."""
    known = [d for d in cells if d.result.get(of) is not None]
    return min(known, key=lambda d: d.result[of]) if known else None


@dataclass(frozen=True)
class Table:
    """Rows of cells of text, the first ``keys`` of which name the row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    keys: int = 1

    def markdown(self) -> str:
        """As GitHub writes tables."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


@dataclass(frozen=True)
class Summary:
    """What an experiment has shown.

    Attributes:
        values: JSON values, all that the picture shows and more.
        table: for the results page.
        draw: onto an empty matplotlib Figure; None: no picture.
        notes: sentences below the table.
        size: of the picture, in inches.
        tables: further ones, each below a heading or a sentence.
        dpi: pixels per inch; fewer where it shows many photographs, which a PNG hardly compresses.
    """

    values: dict[str, Any]
    table: Table
    draw: Callable[[Any], None] | None = None
    notes: tuple[str, ...] = ()
    size: tuple[float, float] = field(default=(7.0, 4.0))
    dpi: int = 150
    tables: tuple[tuple[str, Table], ...] = ()


class Experiment(Protocol):
    """What the module of an experiment offers.

    One that can say nothing of a data set without all its cells has ``WHOLE = True`` too (`whole`). One that asks for
    more where its search has ended has ``further(results) -> list[Cell]``.
    """

    TITLE: str

    def cells(self, tasks: Sequence[Task], scale: Scale) -> list[Cell]:
        """All that has to be computed."""

    def summarise(self, results: Results) -> Summary:
        """From the results of all cells."""


def bare_percent(share: float | None, digits: int = 1) -> str:
    """For tables whose heading has the unit: 0.1734 -> "17.3"."""
    return percent(share, digits, unit="")
