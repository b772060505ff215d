"""What `lqf paper` does: open the data, run the cells, write the results."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lqf.errors import LQFError
from lqf.paper.cells import Store
from lqf.paper.experiments import EXPERIMENTS
from lqf.paper.lab import Lab
from lqf.paper.results import require_matplotlib, write_results
from lqf.paper.run import Run, open_tasks
from lqf.paper.scale import SCALES, Scale
from lqf.progress import SILENT, Progress


@dataclass(frozen=True)
class Order:
    """One experiment to carry out.

    Attributes:
        name: of the experiment.
        data: folders with `train` and `test`.
        out: where results go; finished cells lie in its folder `cells`.
        device: where to compute.
        command: as it was typed.
        scale: a name of `SCALES`, or one's own.
        backbone, weights, size, epochs: instead of the scale's.
        part: (I, K): compute every K-th cell, beginning with the I-th, and write no results.
        finished: compute nothing; the results of cells that are all there, whatever device they were computed on.
    """

    name: str
    data: tuple[str, ...]
    out: Path
    device: torch.device
    command: str
    scale: str | Scale = "short"
    backbone: str | torch.nn.Module = "efficientnet_lite0"
    weights: str | None = None
    size: int | None = None
    epochs: int | None = None
    part: tuple[int, int] | None = None
    finished: bool = False

    @property
    def sized(self) -> Scale:
        """The scale, with what was given in place of its own."""
        scale = SCALES[self.scale] if isinstance(self.scale, str) else self.scale
        return replace(scale, size=self.size or scale.size, epochs=self.epochs or scale.epochs)


def without_folders(command: str) -> str:
    """A command line with the last part of every path alone, for a page that others read."""
    return shlex.join(Path(w).name if "/" in w else w for w in shlex.split(command))


def use_finished(run: Run, lab: Lab) -> None:
    """Let ``run`` find its cells under the kind of device that has computed all of them."""
    missing = {}
    for kind in ("cuda", "cpu"):
        lab.device = torch.device(kind)
        missing[kind] = run.missing()
        if missing[kind] == 0:
            return
    raise LQFError(
        f"{min(missing.values())} of {len(run.cells())} cells are not in `{run.store.folder}`; "
        "run the experiment without --finished to compute them"
    )


def carry_out(order: Order, progress: Progress = SILENT) -> dict[str, Any]:
    """Run it; what the command prints."""
    require_matplotlib()
    experiment, scale, store = EXPERIMENTS[order.name], order.sized, Store(order.out / "cells")
    lab = Lab(
        order.backbone,
        order.weights,
        order.device,
        scale.size,
        scale.classes,
        scale.per_class,
        scale.test_per_class,
        progress,
    )
    run = Run(experiment, open_tasks(order.data, lab), scale, store, progress, order.part or (1, 1))
    if order.finished:
        use_finished(run, lab)
    try:
        results = run.results()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; finished cells are kept in `{store.folder}`. To continue:\n  {order.command}"
        ) from None
    seconds = sum(d.seconds for d in results)
    if order.part:
        return {"experiment": order.name, "cells": len(results.done), "of": len(run.cells()), "seconds": seconds}
    summary = experiment.summarise(results)
    told = {
        "command": without_folders(order.command),
        "hardware": results.hardware(),
        "network": lab.network(leaky=False).name,
        "pixels": lab.preprocess.size,
        "seconds": seconds,
    }
    files = write_results(order.out, order.name, experiment.TITLE, results, summary, told, list(EXPERIMENTS))
    return {
        "experiment": order.name,
        "cells": len(results.done),
        "seconds": seconds,
        "table": {"columns": summary.table.columns, "rows": summary.table.rows},
        "notes": summary.notes,
        "summary": summary.values,
        "files": files,
    }
