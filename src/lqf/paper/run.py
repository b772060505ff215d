"""Run an experiment: every cell that is not there yet, one after the other, then the summary."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lqf.errors import LQFError
from lqf.hardware import hardware
from lqf.paper.cells import Cell, Store
from lqf.paper.experiment import Done, Experiment, Results
from lqf.paper.lab import Lab, Task, open_task
from lqf.paper.scale import Scale
from lqf.paper.works import WORKS
from lqf.progress import Progress


@dataclass
class Run:
    """One experiment on some data sets.

    Attributes:
        experiment: what to do.
        tasks: the data sets, opened.
        scale: how much of it.
        store: where finished cells lie.
        progress: where to report.
        part: (I, K): only every K-th cell is computed, beginning with the I-th of 1 … K.
    """

    experiment: Experiment
    tasks: Sequence[Task]
    scale: Scale
    store: Store
    progress: Progress
    part: tuple[int, int] = (1, 1)

    def results(self) -> Results:
        """All cells (of a part: those that are there), from the store where they are there.

        Interrupted, what is finished stays.
        """
        cells = self.cells()
        known = [self.store.get(self.identity(c)) for c in cells]
        there = sum(r is not None for r in known)
        self.progress.say(f"{len(cells)} cells, {there} of them finished before")
        first, of = self.part
        wanted = [r is None and k % of == first - 1 for k, r in enumerate(known)]
        with self.progress.stage("cells", total=sum(wanted), unit="cells") as stage:
            for k, cell in enumerate(cells):
                if wanted[k]:
                    known[k] = self._compute(cell, f"{k + 1}/{len(cells)}")
                    stage.advance()
        done = [
            Done(cell, record["result"], record["seconds"], record["hardware"])
            for cell, record in zip(cells, known, strict=True)
            if record is not None
        ]
        return Results(self.tasks, self.scale, done)

    def cells(self) -> list[Cell]:
        """All cells, each once."""
        return list({str(c.describe()): c for c in self.experiment.cells(self.tasks, self.scale)}.values())

    def missing(self) -> int:
        """How many cells are not there."""
        return sum(self.store.get(self.identity(c)) is None for c in self.cells())

    def identity(self, cell: Cell) -> dict[str, Any]:
        """All that the cell's result depends on; the data set by its contents, not by its name."""
        task, work = self._task(cell), WORKS[cell.work]
        return {
            "work": cell.work,
            "version": work.version,
            "params": dict(cell.params),
            "data": task.fingerprint,
            "lab": task.lab.describe(),
        }

    def _compute(self, cell: Cell, at: str) -> dict[str, Any]:
        task, began = self._task(cell), time.perf_counter()
        result = WORKS[cell.work].function(task, **cell.params)
        seconds = time.perf_counter() - began
        free_memory(task.lab.device)
        error = result.get("test_error")
        shown = "" if error is None else f" {100 * error:.1f} %,"
        self.progress.say(f"{at} {cell}:{shown} {seconds:.1f} s")
        record = {"name": task.name, "result": result, "seconds": seconds, "hardware": hardware(task.lab.device)}
        return self.store.put(self.identity(cell), record)

    def _task(self, cell: Cell) -> Task:
        return next(t for t in self.tasks if t.name == cell.data)


def free_memory(device: torch.device) -> None:
    """Let go of what a cell has left: recorded passes refer to themselves and stay until Python looks for them."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def open_tasks(folders: Sequence[str | Path], lab: Lab) -> list[Task]:
    """Every data set, under names of their own."""
    names = [Path(f).resolve().name for f in folders]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise LQFError(f"two data sets are called `{min(twice)}`; give folders of different names")
    return [open_task(folder, lab) for folder in folders]
