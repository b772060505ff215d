"""Moving the linearisation point: what one, two, three steps, or a short fine-tuning first, give and cost.

    python benchmarks/moving.py DATA… [--steps 0 1 2 3] [--finetune 3 10] [--rates 0.01 0.001] [--loo folds] [--size 96]
        [--limit-per-class 20] [--backbone …] [--weights …] [--device cuda]

DATA is a folder with train/ and test/. Every line is one fit from the pretrained weights: its test error, its seconds
and, with --loo folds, what refits without each fold say (which take several times as long as the fit itself). With
--finetune also what ordinary fine-tuning for the same epochs gives by itself.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from common.hardware import hardware, write
from common.options import Options, settings_of

from lqf import LQFClassifier
from lqf.backbones import load_backbone
from lqf.data import load_samples, open_images
from lqf.runtime.device import resolve_device
from lqf.training.finetune import FineTuning
from lqf.utils.progress import terminal_progress

KEPT = ("n", "solver", "pooling", "views", "moved", "loo_error", "loo_level", "loo_note", "relative_residual", "passes")


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --steps 0 1 --finetune 1 --size 32 --limit-per-class 6 --linearize stage7")
    out.add_data("+")
    out.add_settings("backbone", "weights", "size", "limit_per_class", "linearize", "device")
    out.add_settings("solver", "head", "pooling", "views", loo="none")
    out.add_argument("--steps", type=int, nargs="*", default=[0, 1, 2, 3])
    out.add_argument("--finetune", type=int, nargs="*", default=[3, 10], help="epochs")
    out.add_argument("--rates", type=float, nargs="*", default=[FineTuning.learning_rate], help="learning rates of it")
    out.add_argument("--name", default="moving")
    return out


def ordinary(args: argparse.Namespace, model: LQFClassifier, epochs: int, rate: float, folder: Path) -> dict[str, Any]:
    """The same epochs of fine-tuning alone, under the head trained with them and average pooling."""
    preprocess = replace(model.fitted_.preprocess, views="none")
    limit = {"limit_per_class": args.limit_per_class, "seed": model.seed}
    train = open_images(load_samples(folder / "train", **limit), preprocess)
    test = open_images(load_samples(folder / "test", classes=train.samples.classes), preprocess)
    device = resolve_device(args.device)
    tuning = FineTuning(learning_rate=rate, epochs=epochs, precision="bf16" if device.type == "cuda" else "float32")
    tuned = tuning.fit(load_backbone(args.backbone, weights=args.weights), train, preprocess, device=device)
    return {"ordinary_test_error": tuned.error(test), "ordinary_seconds": tuned.seconds}


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    runs: list[dict[str, Any]] = [{"relinearize": k} for k in args.steps]
    runs += [{"finetune_first": e, "learning_rate": r} for e in args.finetune for r in args.rates]
    rows: list[dict[str, Any]] = []
    for folder in args.data:
        for moves in runs:
            model = LQFClassifier(**settings_of(args), **moves)
            report = model.fit(folder / "train", progress=terminal_progress()).report_
            error = 1 - model.score(folder / "test")
            row = {"data": folder.name, **moves, "test_error": error} | {k: report[k] for k in KEPT}
            row |= {"seconds": report["seconds"], "stages": report["stages"]}
            if "finetune_first" in moves:
                row |= ordinary(args, model, moves["finetune_first"], moves["learning_rate"], folder)
            rows.append(row)
            loo = "–" if report["loo_error"] is None else f"{report['loo_error']:.1%}"
            print(f"{folder.name:22s} {moves!s:48s} test {error:.1%}  loo {loo}  {report['seconds']:.0f} s", flush=True)
            what = {"backbone": args.backbone, "size": args.size, "limit_per_class": args.limit_per_class}
            path = write(args.name, {**what, "rows": rows, "hardware": hardware(resolve_device(args.device))}, args.out)
    print(path)


if __name__ == "__main__":
    main()
