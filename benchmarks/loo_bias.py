"""Does leave-one-out flatter? Its error beside the test error, over many small problems with few images per class.

    python benchmarks/loo_bias.py DATA [--classes 6] [--per-class 10] [--draws 10] [--size 96]

DATA is a folder with train/ and test/. Every draw takes some classes and some images of each, fits with the exact dense
solver, and counts the errors that leave-one-out predicts on the training images and those made on the classes' test
images. A point that has seen a label gives it away; cross-fitting hides each label from its own row, and what is left
is that the other rows' heads have seen it.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from hardware import hardware, write
from subset import subset

from lqf import LQFClassifier
from lqf.runtime.device import resolve_device
from lqf.settings import CHOICES


def rate(wrong: list[bool]) -> dict[str, float]:
    """Error and its standard error."""
    p, n = float(np.mean(wrong)), len(wrong)
    return {"error": p, "standard_error": math.sqrt(p * (1 - p) / n), "n": n}


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--weights")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--classes", type=int, default=6)
    parser.add_argument("--per-class", type=int, default=10)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--name", default="loo_bias")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    runs: dict[str, dict[str, Any]] = {"closed-form head": {"solver": "head"}}
    runs |= {point: {"solver": "dense", "head": point} for point in CHOICES["head"]}
    wrong: dict[str, dict[str, list[bool]]] = {run: {"loo": [], "test": []} for run in runs}
    for draw in range(args.draws):
        generator = np.random.default_rng(draw)
        few, (x, y) = subset(args.data, args.classes, args.per_class, generator)
        for run, options in runs.items():
            common = {"size": args.size, "weights": args.weights, "device": args.device, "seed": draw}
            model = LQFClassifier(args.backbone, **common, **options)
            loo = model.fit(*few).leave_one_out()
            wrong[run]["loo"] += (loo.predicted != loo.labels).tolist()
            wrong[run]["test"] += (model.predict(x) != np.array(y)).tolist()
        print(draw, {r: [round(100 * float(np.mean(w)), 1) for w in v.values()] for r, v in wrong.items()}, flush=True)
        result = {
            "what": f"{args.data.name}, {args.backbone}, {args.size} px",
            "problem": f"{args.classes} classes × {args.per_class} images",
            "draws": draw + 1,
            "errors": {run: {k: rate(w) for k, w in v.items()} for run, v in wrong.items()},
            "hardware": hardware(resolve_device(args.device)),
        }
        write(args.name, result, args.out)  # after every draw: a run takes long


if __name__ == "__main__":
    main()
