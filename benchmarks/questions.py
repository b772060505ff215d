"""Seconds and passes over the training images that questions about a model take, and what quick answers are worth.

    python benchmarks/questions.py DATA --size 96 --limit-per-class 10 --solvers head dense pcg

DATA is a folder with train/ and test/. Every question is asked of a model that was loaded from its folder just before,
as a command does; the time to load it and to open the training images is in every figure. Passes are counted: every
sweep over all training images, forward or backward; the fit's own solve is counted likewise. A model solved by
conjugate gradients is also asked quickly: its answers are correlated with the exact ones, and both, where the dense
kernel of the same problem fits, with removals by that kernel, which are what real refits give.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from common.hardware import hardware, write
from common.options import Options

import lqf
from lqf import LQFClassifier
from lqf.analysis.contrast import weights_of
from lqf.fitting import FittedModel
from lqf.linear.inputs import Inputs
from lqf.runtime.device import resolve_device

GONE = 10
"""Samples that `what_if` leaves out."""
ASKED = 10
"""Images that are asked about at once."""
PAIRS = 4000
"""(Row, output) pairs up to which removals by the dense kernel are compared with."""
NAMES = ("backbone", "weights", "size", "limit_per_class", "device", "seed", "views", "pooling")
"""Settings."""


class Sweeps:
    """Counts sweeps over as many rows as the training images have."""

    def __init__(self) -> None:
        self.made = self.rows = 0
        batches = Inputs.batches

        def counted(inputs: Inputs) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            self.made += len(inputs) == self.rows
            return batches(inputs)

        Inputs.batches = counted  # type: ignore[method-assign]

    def of(self, work: Callable[[], Any]) -> dict[str, float]:
        """Seconds and sweeps of one call."""
        before, began = self.made, time.perf_counter()
        work()
        return {"seconds": time.perf_counter() - began, "passes": self.made - before}


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --limit-per-class 6 --solvers head dense")
    out.add_data()
    out.add_settings(*NAMES)
    out.add_argument("--solvers", nargs="+", default=["head", "dense", "pcg"], help="models that are asked")
    return out


def questions(images: list[Path], gone: int) -> dict[str, Callable[[LQFClassifier], Any]]:
    """By name."""
    return {
        "audit": lambda model: model.audit(),
        "explain one image": lambda model: model.explain(images[0], quick=False),
        "explain ten images": lambda model: model.explain(images[:ASKED], quick=False),
        "explain one image, quick": lambda model: model.explain(images[0], quick=True),
        f"without {gone} samples": lambda model: model.what_if(images[0], without=range(gone)),
    }


def measured(data: Path, solver: str, args: argparse.Namespace, sweeps: Sweeps) -> dict[str, Any]:
    """What questions about one model cost."""
    images = sorted((data / "test").glob("*/*"))
    images = images[:: max(1, len(images) // ASKED)][:ASKED]
    given = {name: getattr(args, name) for name in NAMES}
    with tempfile.TemporaryDirectory() as folder:
        model, run = LQFClassifier(**given, solver=solver, verbose=0), Path(folder) / "run"
        fit = sweeps.of(lambda: model.fit(data / "train"))
        model.save(run)
        fitted = model.fitted_
        assert isinstance(fitted, FittedModel)
        n, known = len(fitted.train.ids), run / "questions.safetensors"
        sweeps.rows = n * fitted.trained_on.n_views
        row: dict[str, Any] = {"solver": solver, "n": n, "classes": len(model.classes_), "fit": fit["seconds"]}
        row |= {"solve_passes": 2 * fitted.report.passes if solver == "pcg" else None}
        row |= {"bytes": known.stat().st_size if known.exists() else 0}
        for name, ask in questions(images, min(GONE, n // 4)).items():
            row[name] = sweeps.of(lambda ask=ask, run=run: ask(lqf.load(run, device=args.device, verbose=0)))
        if solver == "pcg":
            row["correlations"] = correlations(lqf.load(run, device=args.device, verbose=0), images)
    return row


def correlations(model: LQFClassifier, images: list[Path]) -> dict[str, Any]:
    """Of quick with exact answers, and of both with removals by the dense kernel: of all images, median and lowest."""
    analysis = model.analyse()
    queries = analysis.queries([str(path) for path in images])
    quick, exact = (analysis.contrast(queries, quick=q) for q in (True, False))
    found = {"quick with exact": over_images(quick.effects, exact.effects)}
    if analysis.problem.quadratic.targets.numel() <= PAIRS:
        dense = model.analyse(method="dense")
        influence = dense.influence(dense.queries([str(path) for path in images]))
        weights = weights_of(exact.first, exact.second, influence.outputs.shape[1])
        removed = (influence.effects * weights).sum(2)
        found |= {"quick with refits": over_images(quick.effects, removed)}
        found |= {"exact with refits": over_images(exact.effects, removed)}
    return found


def over_images(a: torch.Tensor, b: torch.Tensor) -> dict[str, float]:
    """Correlation over the training samples, of every image."""
    each = [float(torch.corrcoef(torch.stack([x, y]))[0, 1]) for x, y in zip(a.T, b.T, strict=True)]
    return {"median": statistics.median(each), "lowest": min(each), "images": len(each)}


def main() -> None:
    """Measure and write JSON."""
    args, rows, sweeps = options().parse(), [], Sweeps()
    device = resolve_device(args.device)
    for solver in args.solvers:
        row = measured(args.data, solver, args, sweeps)
        rows.append(row)
        asked = {k: v for k, v in row.items() if isinstance(v, dict) and "seconds" in v}
        said = ", ".join(f"{k} {v['seconds']:.1f} s ({v['passes']} passes)" for k, v in asked.items())
        print(f"{row['solver']:6} fit {row['fit']:.1f} s; {said}", flush=True)
        name = f"questions-{args.data.name}-{args.backbone.replace(':', '-')}-{device.type}-{row['n']}"
        write(name, {"data": args.data.name, "rows": rows, "hardware": hardware(device)}, args.out)


if __name__ == "__main__":
    main()
