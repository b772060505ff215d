"""Which weight decays leave-one-out picks and which a validation set picks, and what both are worth on test images.

    python benchmarks/tuning.py DATA [--per-class 20] [--validation 40] [--solver dense] [--size 96]

DATA is a folder with train/ and test/. Of each class some training images are fitted on and some others validate. The
fitted model is tuned by `lqf tune`, once by leave-one-out and once by the validation images: the path over both weight
decays, and from its best pair downhill along the exact slope. Nothing is chosen by test images: the model as it was
fitted and both tuned ones are measured on them once, and compared with the fitted one image by image.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from common.hardware import hardware, write
from common.options import Options, settings_of
from common.subset import pictures

import lqf
from lqf import LQFClassifier
from lqf.runtime.device import resolve_device


def options() -> Options:
    """The command line."""
    parser = Options(
        __doc__, "DATA --per-class 4 --validation 2 --size 32 --solver head --backbone mobilenet_v2 --weights random"
    )
    parser.add_data()
    parser.add_settings("device", "backbone", "weights", "linearize", "pooling", "views")
    parser.add_settings(solver="dense", size=96, seed=0)
    parser.add_argument("--per-class", type=int, default=20, metavar="N", help="training images of each class (20)")
    parser.add_argument("--validation", type=int, default=40, metavar="N", help="validation images of each class (40)")
    parser.add_argument("--test", type=int, metavar="N", help="test images of each class, at most; default: all")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="where pictures of both paths go")
    return parser


def tuned(model: LQFClassifier, train: list[Path], judges: tuple[Any, Any], plot: Path | None) -> tuple[Any, Any]:
    """A tuned model, and what the search found."""
    began = time.perf_counter()
    path = model.tune(*judges, train=train)
    seconds = time.perf_counter() - began
    if plot is not None:
        path.plot(plot, overwrite=True)
    found = {k: v for k, v in path.to_dict().items() if k in ("by", "n", "level", "current", "best", "grid", "descent")}
    return model.tuned(path, train=train), {**found, "seconds": round(seconds, 2)}


def _part(paths: list[Path], labels: list[str], which: np.ndarray) -> tuple[list[Path], list[str]]:
    numbers = which.nonzero()[0]
    return [paths[i] for i in numbers], [labels[i] for i in numbers]


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Fit, tune twice, measure once."""
    generator = np.random.default_rng(args.seed)
    names = sorted(p.name for p in (args.data / "train").iterdir() if p.is_dir())
    paths, labels = pictures(args.data / "train", names, args.per_class + args.validation, generator)
    seen = np.concatenate([np.arange(labels.count(n)) < args.per_class for n in names])
    train, validation = (_part(paths, labels, seen == wanted) for wanted in (True, False))
    test = pictures(args.data / "test", names, args.test, generator)
    model = LQFClassifier(**settings_of(args)).fit(*train)
    models, searches = {"fitted": model}, {}
    for name, judges in (("leave-one-out", (None, None)), ("validation", validation)):
        plot = None if args.plots is None else args.plots / f"{args.data.name}-{name}.png"
        models[name], searches[name] = tuned(model, train[0], judges, plot)
        print(f"{args.data.name}, {name}: {searches[name]['best']}", flush=True)
    compared = {name: lqf.compare(model, other, *test) for name, other in models.items()}
    return {
        "data": args.data.name,
        "training_images": len(train[0]),
        "validation_images": len(validation[0]),
        "test_images": len(test[0]),
        "classes": len(names),
        "models": {
            name: {
                "weight_decay": models[name].report_["weight_decay"],
                "body_weight_decay": models[name].report_["body_weight_decay"],
                "loo_error": models[name].report_["loo_error"],
                "test_error": c.second.error.value,
                "test_log_loss": c.second.log_loss.value,
                "minus_fitted": {
                    "error": [c.difference.error.value, c.difference.error.interval],
                    "log_loss": [c.difference.log_loss.value, c.difference.log_loss.interval],
                },
            }
            for name, c in compared.items()
        },
        "searches": searches,
    }


def main() -> None:
    """Measure and write."""
    args = options().parse()
    result = {**measured(args), "hardware": hardware(resolve_device(args.device))}
    for name, of in result["models"].items():
        print(f"{name}: test error {of['test_error']:.1%}, log loss {of['test_log_loss']:.3f}")
    print(write(f"tuning-{args.data.name}-{args.backbone}-cpu", result, args.out))


if __name__ == "__main__":
    main()
