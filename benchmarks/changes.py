"""Products over the data that forgetting and adding take by conjugate gradients, as shares of those of a refit.

    python benchmarks/changes.py oxford_flowers102 --backbone resnet50 --weights r50.safetensors --device cuda

A refit solves the same problem (the samples that are left, the same point, the same strengths) from nothing; a change
goes on from where the solution was. Both stop at the same tolerance, and every tolerance has rows of its own. The first
draw of every size is compared with a refit of its own; the others' shares are of that one's products. "difference" is
the largest one of an output on training images, relative to the largest output. A change also passes over the images
that leave or come alone, which counts as what part of all images they are.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from common.hardware import hardware, write
from common.options import Options

from lqf import LQFClassifier
from lqf.backbones import load_backbone
from lqf.changes.samples.add import add
from lqf.changes.samples.changed import changed_model
from lqf.changes.samples.forget import forget, refitted
from lqf.changes.samples.newcomers import everyone, grown
from lqf.changes.samples.outcome import Changed
from lqf.changes.samples.solve import solve
from lqf.data import Images, load_samples, open_images, select_images
from lqf.fitting import Context, FittedModel
from lqf.fitting.reopen import reopen
from lqf.linear.batch import usual_rows
from lqf.runtime.device import computing_on, resolve_device
from lqf.utils.progress import SILENT

GONE, DRAWS = (1, 10, 100), (5, 3, 2)
"""Images that are forgotten, and how often."""
MORE = 0.1
"""Share of new images that are added."""
BARS = {1: 0.1, 10: 0.25, 100: 0.6}
"""Of the share, for images that are forgotten; and for those that are added."""
BAR_OF_ADDING = 0.6
Result = TypeVar("Result")
NAMES = ("backbone", "weights", "size", "limit_per_class", "linearize", "device", "seed", "max_passes", "pooling")
"""Settings."""


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --limit-per-class 12 --gone 1 4 --draws 2 1 --tols 0.02")
    out.add_data()
    out.add_settings(*NAMES[:-1], pooling="avg")
    out.add_argument("--gone", nargs="*", type=int, default=list(GONE), help="numbers of images that are forgotten")
    out.add_argument("--draws", nargs="*", type=int, default=list(DRAWS), help="how often, for every number")
    out.add_argument("--tols", nargs="+", type=float, default=[0.02, 0.005], help="tolerances of all solutions")
    return out


@dataclass(frozen=True)
class Bench:
    """One fit, and the images that are not in it yet.

    Attributes:
        model: solved at one tolerance.
        images: of its training samples.
        more: that are added.
        device: where to compute.
    """

    model: FittedModel
    images: Images
    more: Images
    device: torch.device

    @property
    def context(self) -> Context:
        """A new one, whose clock begins."""
        return Context(self.model.settings, self.device)

    def at(self, tol: float) -> Bench:
        """The same with the optimum at another tolerance, solved from nothing."""
        if tol == self.model.settings.tol:
            return self
        model = replace(self.model, settings=replace(self.model.settings, tol=tol))
        return replace(self, model=again(replace(self, model=model).context, model, self.images))

    def forget(self, k: int, draw: int) -> tuple[Changed, Images]:
        """Without k images."""
        gone = np.zeros(len(self.images), bool)
        gone[np.random.default_rng([k, draw]).choice(len(gone), k, replace=False)] = True
        left, leaving = (select_images(self.images, mask) for mask in (~gone, gone))
        return forget(self.model, ~gone, left, self.context, lambda: self.images, lambda: leaving), left

    def add(self) -> tuple[Changed, Images]:
        """With the others."""
        table = grown(self.model.train, self.model.classes, self.more, None)
        changed = add(self.model, table, lambda: self.images, self.more, self.context)
        return changed, everyone(self.images, self.more)


def again(context: Context, model: FittedModel, images: Images) -> FittedModel:
    """The model solved from nothing, at its own strengths."""
    problem = reopen(replace(model, known=None), images, context)
    problem, solution = solve(problem, model)
    solved = changed_model(model, model.train, problem, solution, {})
    problem.release()
    return replace(solved, report=replace(solved.report, changes=()))


@dataclass
class Comparison:
    """Changes of one kind, against the refit of the first.

    Attributes:
        bench: what is changed.
        what: kind.
        changed_rows: images that leave or come.
        bar: of the share.
        refit: products and seconds of the refit, after the first.
    """

    bench: Bench
    what: str
    changed_rows: int
    bar: float | None
    refit: dict[str, Any] | None = None

    def row(self, change: Callable[[], tuple[Changed, Images]], draw: int) -> dict[str, Any]:
        """One change, measured."""
        seconds, (changed, images) = self._timed(change)
        own = changed.outcome
        whole = own.passes or 0
        products = whole + (0.5 if whole > 1 else 0.0) + self.changed_rows / len(images)
        found: dict[str, Any] = {
            "what": self.what,
            "tol": self.bench.model.settings.tol,
            "draw": draw,
            "n": len(images),
            "products": products,
            "seconds": seconds,
            "stages": changed.model.report.stages,
            "output gap": changed.model.report.output_gap,
            "relative residual": own.relative_residual,
            "bound": own.bound,
        }
        if self.refit is None:
            found |= self._against_refit(changed, images)
        assert self.refit is not None
        share = products / self.refit["products"]
        return found | {"share": share, "bar": self.bar, "met": self.bar is None or share <= self.bar}

    def _against_refit(self, changed: Changed, images: Images) -> dict[str, Any]:
        seconds, refit = self._timed(lambda: refitted(changed, images, self.bench.context))
        mine, theirs = (_outputs(m, images, self.bench.device) for m in (changed.model, refit))
        report = refit.report
        self.refit = {"products": report.passes, "seconds": seconds, "stages": report.stages}
        far = mine - theirs
        return {
            "refit": self.refit | {"relative residual": report.relative_residual, "output gap": report.output_gap},
            "difference": float(far.abs().max() / theirs.abs().max()),
            "root mean square difference": float(far.norm() / theirs.norm()),
            "classes that differ": int((mine.argmax(1) != theirs.argmax(1)).sum()),
        }

    def _timed(self, call: Callable[[], Result]) -> tuple[float, Result]:
        began = time.perf_counter()
        result = call()
        if self.bench.device.type == "cuda":
            torch.cuda.synchronize(self.bench.device)
        return time.perf_counter() - began, result


def _outputs(model: FittedModel, images: Images, device: torch.device) -> torch.Tensor:
    return model.outputs(images, device=device, batch_size=usual_rows(device), progress=SILENT)


def rows_of(bench: Bench, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One tolerance."""
    for k, draws in zip(args.gone, args.draws, strict=True):
        comparison = Comparison(bench, f"forget {k}", k, BARS.get(k))
        for draw in range(draws):
            yield comparison.row(lambda k=k, draw=draw: bench.forget(k, draw), draw)
    m = len(bench.more)
    yield Comparison(bench, f"add {m}", m, BAR_OF_ADDING).row(bench.add, 0)


def fitted(args: argparse.Namespace, device: torch.device) -> Bench:
    """The fit to all but a share of the images."""
    given = {name: getattr(args, name) for name in NAMES}
    estimator = LQFClassifier(**given, solver="pcg", tol=args.tols[0], views="none", loo="none", verbose=0)
    samples = load_samples(args.data / "train", limit_per_class=args.limit_per_class, seed=args.seed)
    preprocess = load_backbone(estimator.backbone, weights=estimator.weights).preprocess(size=estimator.size)
    every = open_images(samples, preprocess)
    order = np.random.default_rng(args.seed).permutation(len(every))
    new = np.sort(order[: round(MORE * len(every) / (1 + MORE))])
    old = np.setdiff1d(np.arange(len(every)), new)
    first = select_images(every, old)
    estimator.fit(first.samples)
    model = estimator.fitted_
    assert isinstance(model, FittedModel)
    return Bench(model, first, select_images(every, new), device)


def main() -> None:
    """Measure and write JSON, whole after every change."""
    args = options().parse()
    device = resolve_device(args.device)
    name = f"changes-{args.data.name}-{args.backbone.replace(':', '-')}-{device.type}"
    with computing_on(device):
        began = time.perf_counter()
        bench = fitted(args, device)
        report = bench.model.report
        found: dict[str, Any] = {
            "data": args.data.name,
            "n": len(bench.images),
            "classes": len(bench.model.classes),
            "unknowns": report.unknowns,
            "fit": {"products": report.passes, "seconds": report.seconds, "stages": report.stages},
            "rows": [],
        }
        for tol in args.tols:
            here = bench.at(tol)
            print(f"tolerance {tol}: {here.model.report.certificate}", flush=True)
            for row in rows_of(here, args):
                found["rows"].append(row)
                print({k: v for k, v in row.items() if k not in ("stages", "refit")}, flush=True)
                write(name, found | {"seconds": time.perf_counter() - began, "hardware": hardware(device)}, args.out)


if __name__ == "__main__":
    main()
