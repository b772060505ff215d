"""Seconds and passes over the training images that questions about a fitted model take, with and without what is kept.

    python benchmarks/questions.py DATA --size 96 --limit-per-class 10 --solvers head dense pcg

DATA is a folder with train/ and test/. Every question is asked of a model that was loaded from its folder just before,
as a command does; the time to load it and to open the training images is in every figure. A pass is what the features
of all training images in all their views take, measured in the same run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.hardware import hardware, write
from common.options import Options

import lqf
from lqf import LQFClassifier
from lqf.data import load_unlabelled, open_images
from lqf.fitting import FittedModel
from lqf.runtime.device import resolve_device

GONE = 10
"""Samples that `what_if` leaves out."""
NAMES = ("backbone", "weights", "size", "limit_per_class", "device", "seed", "views", "pooling")
"""Settings."""


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
        "explain one image": lambda model: model.explain(images[0]),
        "explain ten images": lambda model: model.explain(images[:10]),
        f"without {gone} samples": lambda model: model.what_if(images[0], without=range(gone)),
    }


def seconds(work: Callable[[], Any]) -> float:
    """Of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def one_pass(model: LQFClassifier, train: Path) -> float:
    """Seconds that the features of the training images take, in the views of the training."""
    fitted = model.fitted_
    assert isinstance(fitted, FittedModel)
    files = [train / name for name in fitted.train.ids]
    images = open_images(load_unlabelled(files), fitted.trained_on)
    images.batch(range(len(images)))
    return min(seconds(lambda: model.features(images)) for _ in range(2))


def measured(data: Path, solver: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row with what a fit keeps, one without."""
    images = sorted((data / "test").glob("*/*"))
    given = {name: getattr(args, name) for name in NAMES}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for keep in ("auto", "none"):
            model = LQFClassifier(**given, solver=solver, keep_for_questions=keep, verbose=0)
            fit, run = seconds(lambda model=model: model.fit(data / "train")), Path(folder) / keep
            model.save(run)
            n, known = len(model.fitted_.train.ids), run / "questions.safetensors"
            row = {"solver": solver, "n": n, "classes": len(model.classes_), "keep_for_questions": keep, "fit": fit}
            row |= {"bytes": known.stat().st_size if known.exists() else 0, "pass": one_pass(model, data / "train")}
            for name, ask in questions(images, min(GONE, n // 4)).items():
                took = seconds(lambda ask=ask, run=run: ask(lqf.load(run, device=args.device, verbose=0)))
                row[name] = {"seconds": took, "passes": took / row["pass"]}
            rows.append(row)
    return rows


def main() -> None:
    """Measure and write JSON."""
    args, rows = options().parse(), []
    for solver in args.solvers:
        rows += measured(args.data, solver, args)
        for row in rows[-2:]:
            said = ", ".join(
                f"{k} {v['seconds']:.1f} s ({v['passes']:.1f})" for k, v in row.items() if isinstance(v, dict)
            )
            print(f"{row['solver']:6} {row['keep_for_questions']:5} fit {row['fit']:.1f} s; {said}", flush=True)
    device = resolve_device(args.device)
    name = f"questions-{args.backbone.replace(':', '-')}-{device.type}-{rows[0]['n']}"
    write(name, {"data": args.data.name, "rows": rows, "hardware": hardware(device)}, args.out)


if __name__ == "__main__":
    main()
