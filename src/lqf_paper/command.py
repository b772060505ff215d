"""What `lqf paper` does: open the data, run the cells, write the results."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from lqf.errors import Incomplete, LQFError, MissingDependency
from lqf.utils.progress import SILENT, Progress
from lqf_paper.experiments import EXPERIMENTS
from lqf_paper.methods.catalogue import METHODS
from lqf_paper.report.results import PageInfo, write_results
from lqf_paper.runner.cells import Store
from lqf_paper.runner.claims import Claims
from lqf_paper.runner.experiment import Results
from lqf_paper.runner.run import Cells, Run, open_tasks
from lqf_paper.runner.scale import SCALES, Scale
from lqf_paper.runner.shown_command import shown_command
from lqf_paper.runner.workspace import Workspace


@dataclass(frozen=True)
class Order:
    """Experiments to carry out.

    Attributes:
        names: of the experiments.
        data: folders with `train` and `test`.
        out: where results go; finished cells lie in its folder `cells`.
        device: where to compute.
        command: as it was typed.
        scale: a name of `SCALES`, or one's own.
        backbone, weights, size, epochs: instead of the scale's.
        seeds: runs of every search's winner.
        select: "validation": choose settings on a part of the training images, too.
        methods: of searches, those whose cells are computed, in this order; empty: all.
        first: of every search, only so many settings with each augmentation are computed; None: all.
        cells_only: compute cells, write no results.
        time_limit: in seconds: begin no cell that may end later, and wait for other processes until then.
        left: compute nothing: which cells are missing, and what they may take.
        leaky_weights: the weights file of the network with leaky activations, where it is one of its own.
        finished: compute nothing; the results of the cells that are there, whatever device they were computed on.
    """

    names: tuple[str, ...]
    data: tuple[str, ...]
    out: Path
    device: torch.device
    command: str
    scale: str | Scale = "short"
    backbone: str | torch.nn.Module = "efficientnet_lite0"
    weights: str | None = None
    size: int | None = None
    epochs: int | None = None
    seeds: int = 1
    select: str = "test"
    methods: tuple[str, ...] = ()
    first: int | None = None
    cells_only: bool = False
    time_limit: float | None = None
    left: bool = False
    finished: bool = False
    leaky_weights: str | None = None

    @property
    def sized(self) -> Scale:
        """The scale, with what was given in place of its own."""
        scale = SCALES[self.scale] if isinstance(self.scale, str) else self.scale
        size, epochs = self.size or scale.size, self.epochs or scale.epochs
        return replace(scale, size=size, epochs=epochs, seeds=self.seeds, select=self.select)

    def workspace(self, progress: Progress) -> Workspace:
        """Network and pixels."""
        scale = self.sized
        limits = (scale.size, scale.classes, scale.per_class, scale.test_per_class)
        return Workspace(self.backbone, self.weights, self.device, *limits, progress, self.leaky_weights)


def carry_out(order: Order, progress: Progress = SILENT) -> dict[str, Any]:
    """Run them; what the command prints.

    An experiment's results are written as soon as none of its cells is being computed, by this process or by another:
    of several processes side by side, the one that ends last writes them.
    """
    began = time.monotonic()
    if order.cells_only and order.finished:
        raise LQFError("--cells-only computes and --finished does not; give one of them")
    if not (order.cells_only or order.left):
        require_extra()
    store, workspace = Store(order.out / "cells"), order.workspace(progress)
    experiments = {name: EXPERIMENTS[name] for name in order.names}
    run = Run(experiments, open_tasks(order.data, workspace), order.sized, store, progress, order.methods, order.first)
    run.until = None if order.time_limit is None else began + order.time_limit
    if order.left:
        return _left(run, workspace)
    if order.finished:
        run.earlier_too = True
        use_finished(run, workspace)
    else:
        try:
            run.compute()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"interrupted; finished cells are kept in `{store.folder}`. To continue:\n  {order.command}"
            ) from None
    if order.cells_only:
        return _only_cells(run)
    written = [r for name in order.names if (r := _written(order, run, name, workspace)) is not None]
    written_or_failed = {"results": written, **_rest(run)}
    if run.failed:
        raise Incomplete(_failed(run), written_or_failed)
    return written_or_failed


def _only_cells(run: Run) -> dict[str, Any]:
    every = run.every()
    there = {"cells": len(every) - run.missing(), **_rest(run)}
    if run.failed:
        raise Incomplete(_failed(run), there)
    return there


def _rest(run: Run) -> dict[str, Any]:
    """What was not computed: by other processes now, failed, not begun for want of time."""
    return {"elsewhere": len(run.elsewhere), "failed": len(run.failed), "left": _listed(run, run.late)}


def _left(run: Run, workspace: Workspace) -> dict[str, Any]:
    """The cells that are missing, under the kind of device that has computed most of the others."""
    return {"cells": use_most(run, workspace), "elsewhere": 0, "failed": 0, "left": _listed(run, run.left())}


def _listed(run: Run, cells: Cells) -> list[dict[str, Any]]:
    return [{"cell": str(c), "seconds": run.seconds(c)} for c in cells.values()]


def use_most(run: Run, workspace: Workspace) -> int:
    """Let ``run`` find its cells under the kind of device that has computed most of them; how many are there."""
    there = {}
    for kind in ("cuda", "cpu"):
        workspace.device = torch.device(kind)
        there[kind] = len(run.every()) - run.missing()  # the more there are, the more may be asked for beyond them
    most = max(there, key=lambda kind: there[kind])
    workspace.device = torch.device(most)
    return there[most]


def use_finished(run: Run, workspace: Workspace) -> None:
    """`use_most`; there have to be some."""
    there, n = use_most(run, workspace), len(run.every())
    if not there:
        raise LQFError(
            f"none of the {n} cells is in `{run.store.folder}`; run the experiment without --finished to compute them"
        )
    if there < n:
        run.progress.say(f"{n - there} of {n} cells are missing; the results are those of the others")


def _written(order: Order, run: Run, name: str, workspace: Workspace) -> dict[str, Any] | None:
    """Write an experiment's results; None where it has none, or not yet."""
    if run.elsewhere & run.cells(name).keys():
        return None
    results, experiment = run.results(name), EXPERIMENTS[name]
    if getattr(experiment, "WHOLE", False):
        results = results.whole()
    if not results.done:
        run.progress.say(f"{name}: too few of its {len(results.wanted)} cells are there; nothing is written")
        return None
    summary = experiment.summarise(results)
    summary = replace(summary, notes=(*summary.notes, *earlier_note(results)))
    info = PageInfo(
        name,
        experiment,
        shown_command(order.command, order.names, name, order.data),
        workspace.network(leaky=False).name,
        workspace.preprocess.size,
    )
    with Claims(run.store.folder / ".claims").lock():  # the page is read, changed and written
        files = write_results(order.out, info, results, summary, list(EXPERIMENTS))
    return {
        "experiment": name,
        "cells": len(results.every),
        "of": len(results.wanted) + len(results.wanted_further),
        "seconds": sum(d.seconds for d in results.every),
        "table": asdict(summary.table),
        "notes": summary.notes,
        "summary": summary.values,
        "files": files,
    }


def earlier_note(results: Results) -> list[str]:
    """Which methods' cells are of before the linear methods' damping and precision changed."""
    of = [d for d in results.every if d.earlier]
    if not of:
        return []
    named = ((d.params.get("method"), d.cell.work) for d in of)
    names = dict.fromkeys(METHODS[m].label if m in METHODS else work for m, work in named)
    return [
        f"{len(of)} of {len(results.every)} cells ({', '.join(names)}) were measured earlier: products in bfloat16 in "
        "training and float32 in test, and K-FAC damped as A + tr A/(bC)·I."
    ]


def _failed(run: Run) -> str:
    n, of = len(run.failed), len(run.every())
    first = next(iter(run.failed.values()))
    return f"{n} of {of} cells failed, the first because: {first}; the same command tries them again"


def require_extra() -> None:
    """Fail now, before hours of work, where a package of the extra is missing."""
    for package in ("matplotlib", "scipy"):
        try:
            import_module(package)
        except ImportError as error:
            raise MissingDependency(package, "`lqf paper`", "pip install 'lqf-torch[paper]'") from error
