"""Seconds and passes over the training images that questions about a model take, and what quick answers are worth.

    python benchmarks/questions.py DATA --size 96 --solvers head dense pcg
    python benchmarks/questions.py DATA DATA… --n 5000 --labels folder --solvers head dense pcg --name six_sets

DATA are folders with train/ and test/, whose images are taken together; with `--labels folder` the label is only
whether an image is of the first one, so that the kernel of thousands of images has one output. Every question is asked
of a model that was loaded from its folder just before, as a command does; the time to load it and to open the training
images is in every figure. Passes are counted: every sweep over all training images, forward or backward; the fit's own
solve is counted likewise.

A model solved by conjugate gradients is also asked quickly: its answers are correlated with the exact ones, over all
training images, and both with removals, image by image. Where the dense kernel of the same problem fits, it removes
every training image, which is what real refits give; else `--removed` of them are removed by solving the problem again
from where it was, half of them random, half random among those of the classes that are explained.

The JSON is written after every question, so that a run that is cut short leaves what it has measured.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from common.agreement import agreement
from common.hardware import hardware, write
from common.joined import Joined, joined
from common.options import Options

import lqf
from lqf import LQFClassifier
from lqf.analysis import Analysis, Contrast, Queries, by_iteration
from lqf.analysis.contrast import weights_of
from lqf.fitting import FittedModel
from lqf.linear.inputs import Inputs
from lqf.runtime.device import resolve_device

GONE = 10
"""Samples that `what_if` leaves out."""
PAIRS = 4000
"""(Row, output) pairs up to which removals by the dense kernel are compared with."""
NAMES = ("backbone", "weights", "size", "linearize", "device", "seed", "views", "pooling", "max_passes", "unconverged")
"""Settings."""
CLOSE = replace(by_iteration.WHAT_IF, tol=0.02, share=1.0)
"""How well a removal is solved that others are compared with."""
PEERS = {
    "of": "Pearson's correlation with true leave-one-out, ridge regression of 200 samples with 50 features, weight "
    "decay 1e-3 and 1e-2, on a CPU; not these networks and images",
    "kronfluence EK-FAC, damping as the weight decay": [0.929, 0.982],
    "kronfluence EK-FAC, its own damping": [0.795, 0.725],
    "TRAK, one checkpoint": [0.44, 0.65],
}
Row = dict[str, Any]
Question = Callable[[LQFClassifier], Any]


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


class Results:
    """Rows that are written whenever they have grown."""

    def __init__(self, data: Joined, args: argparse.Namespace):
        self.rows: list[Row] = []
        device = resolve_device(args.device)
        source = args.name or "-".join(folder.name for folder in args.data)
        backbone = args.backbone.replace(":", "-")
        self.name = f"questions-{source}-{backbone}-{device.type}-{len(data.train[0])}"
        self.about = {"data": data.what, "backbone": args.backbone, "size": args.size}
        self.out, self.hardware = args.out, hardware(device)

    def write(self) -> None:
        """What there is."""
        write(self.name, {**self.about, "rows": self.rows, "hardware": self.hardware}, self.out)

    def add(self, row: Row, name: str, found: dict[str, Any]) -> None:
        """One more finding of the last row."""
        row[name] = found
        self.write()
        if "seconds" in found:
            print(f"{row['solver']:6} {name:26} {found['seconds']:7.1f} s  {found['passes']} passes", flush=True)


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --n 12 --solvers head dense --asked 2")
    out.add_data(nargs="+")
    out.add_settings(*NAMES)
    out.add_argument("--n", type=int, help="training images; default: all")
    out.add_argument("--classes", type=int, help="so many random ones; default: all")
    out.add_argument("--labels", choices=("class", "folder"), default="class", help="what the label of an image is")
    out.add_argument("--solvers", nargs="+", default=["head", "dense", "pcg"], help="models that are asked")
    out.add_argument("--asked", type=int, default=10, help="images that are asked about at once")
    out.add_argument("--removed", type=int, default=0, help="training images that are removed by solving again")
    out.add_argument("--name", help="of the data, in the file's name")
    return out


def questions(images: list[Path], gone: int, asked: list[tuple[Analysis, Queries]]) -> dict[str, Question]:
    """By name; the analysis of several images at once is added to ``asked``, with what it has found."""

    def explain_several(model: LQFClassifier) -> None:
        analysis = model.analyse()
        asked.append((analysis, analysis.queries([str(path) for path in images])))
        model.explain(asked[-1][1], quick=False)

    several = {f"explain {len(images)} images": explain_several}
    return {
        "audit": lambda model: model.audit(),
        "explain one image": lambda model: model.explain(images[0], quick=False),
        "explain one image, quick": lambda model: model.explain(images[0], quick=True),
        f"without {gone} samples": lambda model: model.what_if(images[0], without=range(gone)),
        **(several if len(images) > 1 else {}),
    }


def measure(data: Joined, solver: str, args: argparse.Namespace, sweeps: Sweeps, results: Results) -> None:
    """What questions about one model cost, and what quick ones are worth."""
    images = data.asked(args.asked)
    given = {name: getattr(args, name) for name in NAMES}
    with tempfile.TemporaryDirectory() as folder:
        model, run = LQFClassifier(**given, solver=solver, verbose=0), Path(folder) / "run"
        fit = sweeps.of(lambda: model.fit(data.manifest(Path(folder))))
        model.save(run)
        fitted = model.fitted_
        assert isinstance(fitted, FittedModel)
        n, known = len(fitted.train.ids), run / "questions.safetensors"
        sweeps.rows = n * fitted.trained_on.n_views
        row: Row = {"solver": solver, "n": n, "classes": len(model.classes_), "fit": fit["seconds"]}
        row |= {"solve_passes": 2 * fitted.report.passes if solver == "pcg" else None}
        row |= {"bytes": known.stat().st_size if known.exists() else 0}
        results.rows.append(row)
        results.write()
        print(f"{solver:6} {'fit':26} {row['fit']:7.1f} s", flush=True)
        asked: list[tuple[Analysis, Queries]] = []
        for name, ask in questions(images, min(GONE, n // 4), asked).items():
            model = lqf.load(run, device=args.device, verbose=0)
            results.add(row, name, sweeps.of(lambda ask=ask, model=model: ask(model)))
        if solver == "pcg" and asked:
            correlate(model, *asked[0], args, lambda found: results.add(row, "correlations", found))


def correlate(
    model: LQFClassifier,
    analysis: Analysis,
    queries: Queries,
    args: argparse.Namespace,
    add: Callable[[dict[str, Any]], None],
) -> None:
    """Of quick with exact answers over all training images, and of both with removals."""
    quick, exact = (analysis.contrast(queries, quick=q) for q in (True, False))
    found: dict[str, Any] = {"images": len(queries), "exact is": exact.note}
    found["quick with exact"] = agreement(quick.effects, exact.effects)
    add(found)
    if analysis.problem.quadratic.targets.numel() <= PAIRS:
        removed, rows, how = by_dense_kernel(model, queries, exact), torch.arange(len(quick.units)), "the dense kernel"
    elif args.removed:
        rows = sampled(analysis, exact, args.removed, args.seed)
        removed, how = by_solving(analysis, queries, exact, rows)
    else:
        return
    found["removals"] = {"training images": len(rows), "by": how}
    found["quick with refits"] = agreement(quick.effects[rows], removed)
    found["exact with refits"] = agreement(exact.effects[rows], removed)
    found["peers"] = PEERS
    add(found)


def by_dense_kernel(model: LQFClassifier, queries: Queries, contrast: Contrast) -> torch.Tensor:
    """(N, Q) change of the scores without each training image."""
    dense = model.analyse(method="dense")
    influence = dense.influence(queries)
    return (influence.effects * weights_of(contrast.first, contrast.second, influence.outputs.shape[1])).sum(2)


def by_solving(
    analysis: Analysis, queries: Queries, contrast: Contrast, rows: torch.Tensor
) -> tuple[torch.Tensor, str]:
    """(k, Q) likewise without some of them, each solved from where the fit was."""
    weights, removed, reached = weights_of(contrast.first, contrast.second, contrast.outputs.shape[1]), [], 0
    with mock.patch.object(by_iteration, "WHAT_IF", CLOSE):
        for i in rows.tolist():
            without = analysis.what_if(queries, without=[i])
            removed.append(((without.outputs - without.before) * weights).sum(1))
            reached += without.level == "solved"
    return torch.stack(removed), f"solves, {reached} of {len(rows)} to {CLOSE.tol:.0%} of the change"


def sampled(analysis: Analysis, contrast: Contrast, k: int, seed: int) -> torch.Tensor:
    """Half of them random ones, half random ones of the classes that are explained."""
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(analysis.ids)))
    explained = torch.isin(analysis.labels[order], torch.cat([contrast.first, contrast.second]))
    near = order[explained][: k // 2]
    other = order[~torch.isin(order, near)][: k - len(near)]
    return torch.cat([near, other])


def main() -> None:
    """Measure and write JSON."""
    args, sweeps = options().parse(), Sweeps()
    data = joined(args.data, n=args.n, classes=args.classes, by_folder=args.labels == "folder", seed=args.seed)
    results = Results(data, args)
    print(data.what, flush=True)
    for solver in args.solvers:
        sweeps.rows = 0
        measure(data, solver, args, sweeps, results)


if __name__ == "__main__":
    main()
