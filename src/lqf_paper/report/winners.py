"""The winner of a search with its runs: of the seed that was searched with, and of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from lqf.evaluation.intervals import wilson
from lqf_paper.methods.catalogue import METHODS
from lqf_paper.methods.validation import SHARE
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, best
from lqf_paper.runner.predictions import unpacked

SEEDLESS = ("lqf-fc", "lqf-fc-paper")
"""Methods in which nothing is drawn at random."""


@dataclass(frozen=True)
class Winner:
    """A setting that has won.

    Attributes:
        chosen: its cell in the search.
        runs: all its runs that did not diverge, that of the search first.
        lost: how many of its repeats diverged.
        labels: (N,) of the test images.
    """

    chosen: Done
    runs: tuple[Done, ...]
    lost: int
    labels: np.ndarray

    @property
    def error(self) -> float:
        """The mean over all runs."""
        return fmean(d.result["test_error"] for d in self.runs)

    @property
    def deviation(self) -> float | None:
        """The standard deviation over all runs; None: there is one."""
        return stdev(d.result["test_error"] for d in self.runs) if len(self.runs) > 1 else None

    @property
    def interval(self) -> tuple[float, float, float]:
        """The error and its 95 % interval (Wilson's, by the number of test images)."""
        return self.error, *wilson(self.error, len(self.labels))

    @property
    def wrong(self) -> np.ndarray | None:
        """(S, N) which test images are taken for another class, where predictions are kept; None: of no run."""
        kept = [unpacked(d.result["predictions"]) for d in self.runs if "predictions" in d.result]
        return np.stack(kept) != self.labels if kept else None


Winners = dict[str, dict[str, Winner | None]]
"""Data set -> method -> winner."""


def winners(results: Results, methods: Iterable[str], select: str = "test") -> Winners:
    """The winner of every method on every data set: by the test error, or ("validation") by that on held-out images."""
    methods = list(methods)
    return {t.name: {m: _winner(results, t.name, m, select) for m in methods} for t in results.tasks}


def _winner(results: Results, data: str, method: str, select: str) -> Winner | None:
    tried = results.where(work="fit", data=data, method=method)
    chosen = _by_validation(results, tried) if select == "validation" and len(tried) > 1 else best(tried)
    return None if chosen is None else winner_of(results, chosen)


def winner_of(results: Results, chosen: Done) -> Winner:
    """A cell and its repeats."""
    again = [d for d in results.further if d.cell.work == "fit" and _apart(d.cell) == _apart(chosen.cell)]
    runs = (chosen, *(d for d in again if d.result["test_error"] is not None))
    labels = next(t for t in results.tasks if t.name == chosen.cell.data).test.samples.labels
    return Winner(chosen, runs, len(again) + 1 - len(runs), labels)


def _by_validation(results: Results, tried: Sequence[Done]) -> Done | None:
    """The cell whose setting has the lowest validation error, the first of them; None: not all were validated.

    A setting whose run on all images diverged has lost, as anyone would see without a test set.
    """
    cells = {
        _settings(d.cell): d for d in results.further if d.cell.work == "validation" and _same(d.cell, tried[0].cell)
    }
    judged = [(d, cells.get(_settings(d.cell))) for d in tried]
    if any(v is None for _, v in judged):
        return None
    known = [(v.result["validation_error"], d) for d, v in judged if v and d.result["test_error"] is not None]
    known = [(e, d) for e, d in known if e is not None]
    return min(known, key=lambda pair: pair[0])[1] if known else None


def further_cells(results: Results, methods: Iterable[str]) -> list[Cell]:
    """What an experiment wants beyond its search: its winners with other seeds, and validation of all settings."""
    made, methods = [], list(methods)
    for name in (t.name for t in results.tasks):
        for method in methods:
            wanted = [c for c in results.wanted if c.data == name and c.params.get("method") == method]
            if results.scale.select == "validation" and len(wanted) > 1:
                made += [Cell("validation", name, _kept(c.params)) for c in wanted]
    ways = dict.fromkeys(("test", results.scale.select))
    for found in (winners(results, methods, way) for way in ways):
        made += [
            Cell("fit", name, {**w.chosen.params, "seed": seed})
            for name, row in found.items()
            for method, w in row.items()
            if w is not None and method not in SEEDLESS
            for seed in range(1, results.scale.seeds)
        ]
    return made


def validated(results: Results) -> bool:
    """Whether any setting was judged without the test images."""
    return any(d.cell.work == "validation" for d in results.further)


def validation_sentence() -> str:
    """How settings are judged without the test images."""
    return (
        f"Settings chosen on a validation part: every setting is trained on {1 - SHARE:.0%} of every class's training "
        "images too and judged on the others, the same for all methods; the test error is that of the setting with "
        "the lowest validation error (the first of them), trained on all training images."
    )


def label(method: str) -> str:
    """Of a method, for tables."""
    return METHODS[method].label


def _apart(cell: Cell) -> tuple[str, dict[str, object]]:
    return cell.data, {k: v for k, v in cell.params.items() if k != "seed"}


def _same(a: Cell, b: Cell) -> bool:
    return a.data == b.data and a.params.get("method") == b.params.get("method")


def _settings(cell: Cell) -> str:
    return str(sorted((cell.params.get("settings") or {}).items()))


def _kept(params: Mapping[str, object]) -> dict[str, object]:
    return {k: v for k, v in params.items() if k in ("method", "settings", "seed", "pool_channels")}
