"""Run experiments: every cell that is not there yet, one after the other; other processes may do the same."""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from lqf.errors import LQFError
from lqf.runtime.hardware import hardware
from lqf.runtime.out_of_memory import free_memory
from lqf.utils.progress import Progress, Stage
from lqf_paper.runner.cells import Cell, Store, key
from lqf_paper.runner.claims import Claims
from lqf_paper.runner.divergence import judged
from lqf_paper.runner.expected import Expected
from lqf_paper.runner.experiment import Done, Experiment, Results
from lqf_paper.runner.registry import WORKS
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task, Workspace, open_task

Cells = dict[str, Cell]
"""Cells by their keys, each once."""
SHARING = ("fit", "validation", "convergence")
"""Works whose cells share features and curvature with those of their group."""
POLL_SECONDS = 0.5
"""How often a process that waits for others looks at their claims."""


@dataclass
class Run:
    """Some experiments on some data sets.

    Attributes:
        experiments: what to do, by name.
        tasks: the data sets, opened.
        scale: how much of it.
        store: where finished cells lie.
        progress: where to report.
        methods: of a search, those whose cells `compute` computes, in this order; empty: all.
        first: of every search, only so many settings with each augmentation are computed; None: all.
        earlier_too: where a method has no cell of today on a data set, take those that were computed before defaults
            changed (`Work.earlier`).
        until: when time is up, by `time.monotonic`: no cell is begun that may take longer; None: never.
        failed: after `compute`, why cells failed, here or in another process; they are tried again next time.
        elsewhere: after `compute`, keys of cells that other processes were still computing.
        late: after `compute`, the cells for which there was no time.
    """

    experiments: Mapping[str, Experiment]
    tasks: Sequence[Task]
    scale: Scale
    store: Store
    progress: Progress
    methods: Sequence[str] = ()
    first: int | None = None
    earlier_too: bool = False
    until: float | None = None
    failed: dict[str, str] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)
    late: Cells = field(default_factory=dict)
    _began: float = field(default_factory=time.time)
    _counted: int = 0

    def compute(self) -> None:
        """Compute what no other process has or computes, until there is nothing left but theirs, or time is up.

        First what the experiments search, then what the searches that have ended ask for beyond that. A cell that
        fails is named and left out. Interrupted, what is finished stays.
        """
        with Claims(self.store.folder / ".claims") as claims:
            while self._round(claims):
                pass

    def results(self, name: str) -> Results:
        """An experiment's cells, as far as they are there."""
        found, further = self._searched(name), list(self._further(name).values())
        done, failed = self._finished(further)
        return replace(found, failed={**found.failed, **failed}, further=done, wanted_further=further)

    def cells(self, name: str) -> Cells:
        """All cells of an experiment; which ones it wants beyond its search depends on those that are there."""
        return {**self._search(name), **self._further(name)}

    def every(self) -> Cells:
        """All cells of all experiments, what is searched first."""
        return self._every(ended=False)

    def _every(self, *, ended: bool) -> Cells:
        found: Cells = {}
        for name in self.experiments:
            found |= self._first(self._search(name)) if ended else self._search(name)
        for name in self.experiments:
            found |= {k: c for k, c in self._further(name, ended=ended).items() if k not in found}
        return found

    def left(self) -> Cells:
        """What `compute` would compute now: chosen cells that are neither there nor have failed since this run began.

        Of what is asked for beyond a search only that of searches that have ended: who wins is not known before.
        """
        return self._open(self._chosen(self._every(ended=True)))

    def seconds(self, cell: Cell, processes: int = 1) -> float | None:
        """What a cell may take with so many processes side by side; None: none like it has been measured."""
        return self._expected.seconds(self.identity(cell), processes)

    def missing(self) -> int:
        """How many cells are not there."""
        return sum(self._record(c) is None for c in self.every().values())

    def _record(self, cell: Cell) -> dict[str, Any] | None:
        """What is kept of a cell, as it is described today or, with `earlier_too`, as it was before."""
        record, earlier = self.store.get(self.identity(cell)), self.earlier(cell)
        return self.store.get(earlier) if record is None and self.earlier_too and earlier is not None else record

    def _search(self, name: str) -> Cells:
        return {key(self.identity(c)): c for c in self.experiments[name].cells(self.tasks, self.scale)}

    def _searched(self, name: str) -> Results:
        cells = list(self._search(name).values())
        done, failed = self._finished(cells)
        return Results(self.tasks, self.scale, done, cells, failed)

    def _further(self, name: str, *, ended: bool = False) -> Cells:
        """What an experiment wants beyond its search; finished cells of these may make it want others.

        With ``ended``, what it wants of methods whose search has ended on a data set.
        """
        wants: Callable[[Results], list[Cell]] | None = getattr(self.experiments[name], "further", None)
        cells: Cells = {}
        if wants is None:
            return cells
        found = self._searched(name)
        if ended:
            searching = {_method(c) for c in self._open(self._first(self._search(name))).values()}
            found = replace(found, done=[d for d in found.done if _method(d.cell) not in searching])
        while new := {k: c for c in wants(found) if (k := key(self.identity(c))) not in cells}:
            cells |= new
            found = replace(found, further=self._finished(list(cells.values()))[0])
        return cells

    def _finished(self, cells: Sequence[Cell]) -> tuple[list[Done], dict[str, str]]:
        """Those of the cells that are there, and why others have failed."""
        done: list[Done] = []
        failed, used = {}, set()
        for cell in cells:
            identity = self.identity(cell)
            record, why = self._record(cell), self.store.failure(identity)
            if record is not None:
                if key(record["identity"]) in used:  # two settings of today may be one of before
                    continue
                used.add(key(record["identity"]))
                settings, classes = identity["params"].get("settings") or {}, len(self._task(cell).classes)
                result = (
                    judged(record["result"], settings, classes) if "losses" in record["result"] else record["result"]
                )
                seconds, machine, side = (record[k] for k in ("seconds", "hardware", "side_by_side"))
                done.append(Done(cell, result, seconds, machine, side, self.store.get(identity) is None))
            elif why is not None:
                failed[str(cell)] = why
        today = {_method(d.cell) for d in done if not d.earlier}
        done = [d for d in done if not d.earlier or _method(d.cell) not in today]
        return done, failed

    def _first(self, cells: Cells) -> Cells:
        """Of every search, the first settings with each augmentation."""
        seen: Counter[tuple[Any, ...]] = Counter()
        kept = {}
        for k, cell in cells.items():
            search = (*_method(cell), cell.params.get("shots"), (cell.params.get("settings") or {}).get("augment"))
            seen[search] += 1
            if self.first is None or cell.params.get("method") is None or seen[search] <= self.first:
                kept[k] = cell
        return kept

    def _chosen(self, cells: Cells) -> Cells:
        """Those of the methods, in their order, behind those that name no method."""
        if not self.methods:
            return cells
        place = {m: i for i, m in enumerate((None, *self.methods))}
        chosen = [k for k, c in cells.items() if c.params.get("method") in place]
        return {k: cells[k] for k in sorted(chosen, key=lambda k: place[cells[k].params.get("method")])}

    def _open(self, cells: Cells) -> Cells:
        return {k: c for k, c in cells.items() if not self._settled(k, c)}

    def _round(self, claims: Claims) -> bool:
        """Compute what can be computed now; whether there may be more to do."""
        every = self._chosen(self._every(ended=True))
        left = self._in_order(self._open(every), claims)
        before, n = len(left), len(every)
        if n != self._counted:
            self.progress.say(f"{n} cells, {n - before} of them finished before")
            self._counted = n
        places = {k: f"{i + 1}/{n}" for i, k in enumerate(every)}
        with self.progress.stage("cells", total=before, unit="cells") as stage:
            while self._some(left, places, claims, stage):
                pass
        left = self._open(left)  # another process may just have ended one
        self.elsewhere = left.keys() & (set(left) if self.until is None else set(claims.living()))
        self.late = {k: c for k, c in left.items() if k not in self.elsewhere}
        return len(left) < before or self._waited(claims)

    def _waited(self, claims: Claims) -> bool:
        """Where time is limited: wait for a cell of another process, which may decide a search; False: in vain."""
        while self.until is not None and self.elsewhere and time.monotonic() < self.until:
            if not self.elsewhere <= set(claims.living()):
                return True
            time.sleep(POLL_SECONDS)
        return False

    @cached_property
    def _expected(self) -> Expected:
        return Expected(self.store, {t.fingerprint: len(t.train) for t in self.tasks})

    def _fits(self, cell: Cell, claims: Claims) -> bool:
        """Whether there is time for a cell; one that nothing is known of may be tried."""
        if self.until is None:
            return True
        return (self.seconds(cell, len(claims.living()) + 1) or 0.0) < self.until - time.monotonic()

    def identity(self, cell: Cell) -> dict[str, Any]:
        """All that the cell's result depends on; the data set by its contents, not by its name."""
        task = self._task(cell)
        settings = WORKS[cell.work].complete(cell.params)
        return {"work": cell.work, **settings, "data": task.fingerprint, "lab": task.workspace.describe()}

    def earlier(self, cell: Cell) -> dict[str, Any] | None:
        """`identity` as it was before defaults changed; None: they have not."""
        settings = WORKS[cell.work].earlier(cell.params)
        return None if settings is None else {**self.identity(cell), **settings}

    def _in_order(self, cells: Cells, claims: Claims) -> Cells:
        """Those last that failed before, or whose process was killed: they might end this one too."""
        claimed = claims.names()
        late = {k: k in claimed or self.store.failure(self.identity(c)) is not None for k, c in cells.items()}
        return {k: cells[k] for k in sorted(cells, key=lambda k: late[k])}

    def _some(self, left: Cells, places: Mapping[str, str], claims: Claims, stage: Stage) -> bool:
        """Go through all that is left once, and take out what is settled; whether there may be more to compute.

        Not once a search has ended here: its winner may be wanted with other seeds, before other searches.
        """
        computed = False
        for k, cell in list(left.items()):
            if not self._settled(k, cell):
                if not self._fits(cell, claims) or not claims.take(k):
                    continue
                try:
                    if not self._settled(k, cell):  # it may have been, before the claim
                        self._compute(k, cell, places[k], claims)
                        computed = True
                finally:
                    claims.release(k)
            del left[k]
            stage.advance()
            if computed and not any(_method(c) == _method(cell) for c in left.values()):
                return False
        return computed and bool(left)

    def _settled(self, k: str, cell: Cell) -> bool:
        """Whether the cell is there, or has failed since this run began."""
        identity = self.identity(cell)
        if self.store.get(identity) is not None:
            return True
        why = self.store.failure(identity, self._began)
        if why is not None:
            self.failed[k] = why
        return why is not None

    def _compute(self, k: str, cell: Cell, at: str, claims: Claims) -> None:
        task, identity, processes = self._task(cell), self.identity(cell), len(claims.living())
        began, why = time.perf_counter(), None
        if cell.work not in SHARING:
            task.workspace.cache.under(None)
        try:
            result = WORKS[cell.work].function(task, **cell.params)
            seconds = time.perf_counter() - began
            record = {"name": task.name, "result": result, "seconds": seconds, "side_by_side": processes}
            self.store.put(identity, {**record, "hardware": hardware(task.workspace.device)})
            error = result.get("test_error")
            shown = "" if error is None else f" {100 * error:.1f} %,"
            self.progress.say(f"{at} {cell}:{shown} {seconds:.1f} s")
        except Exception as error:
            why = reason(error)
            if os.environ.get("LQF_DEBUG") == "1":
                traceback.print_exc()
        if why is not None:
            self.failed[k] = why
            self.store.fail(identity, why)
            self.progress.say(f"{at} {cell}: failed: {why}")
            task.workspace.cache.under(None)  # what cells share may be what took the memory
        free_memory()  # not before: an error holds what was computed until then

    def _task(self, cell: Cell) -> Task:
        return next(t for t in self.tasks if t.name == cell.data)


def _method(cell: Cell) -> tuple[str, str, Any]:
    return cell.data, cell.work, cell.params.get("method")


def reason(error: Exception) -> str:
    """Why a cell failed, in one line."""
    what = f"{type(error).__name__}: {error}".strip().rstrip(":").splitlines()[0]
    if isinstance(error, LQFError):
        return " ".join(str(error).split())
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return f"the memory did not suffice ({what}); fewer processes side by side leave each more of it"
    return f"stopped by {what}"


def open_tasks(folders: Sequence[str | Path], workspace: Workspace) -> list[Task]:
    """Every data set, under names of their own."""
    names = [Path(f).resolve().name for f in folders]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise LQFError(f"two data sets are called `{min(twice)}`; give folders of different names")
    return [open_task(folder, workspace) for folder in folders]
