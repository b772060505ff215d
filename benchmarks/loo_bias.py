"""Does leave-one-out flatter? Its error and the test error, over many small problems with few images per class.

    python benchmarks/loo_bias.py DATA [--classes 6] [--per-class 10] [--draws 10] [--size 96]

DATA is a folder with train/ and test/. Every draw takes some classes and some images of each, fits with the exact dense
solver, and counts the errors that leave-one-out predicts on the training images and those made on the classes' test
images. A point that has seen a label gives it away; cross-fitting hides each label from its own row, and what is left
is that the other rows' heads have seen it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from common.hardware import hardware, write
from common.options import CHOICES, Options, settings_of
from common.subset import subset

from lqf import LQFClassifier
from lqf.runtime.device import resolve_device


def rate(wrong: list[bool]) -> dict[str, float]:
    """Error and its standard error."""
    p, n = float(np.mean(wrong)), len(wrong)
    return {"error": p, "standard_error": math.sqrt(p * (1 - p) / n), "n": n}


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --per-class 5 --draws 1 --size 32 --linearize stage7")
    out.add_data()
    out.add_settings("backbone", "weights", "linearize", "device", size=96)
    out.add_argument("--classes", type=int, default=6)
    out.add_argument("--per-class", type=int, default=10)
    out.add_argument("--draws", type=int, default=10)
    out.add_argument("--name", default="loo_bias")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    runs: dict[str, dict[str, Any]] = {"closed-form head": {"solver": "head"}}
    runs |= {point: {"solver": "dense", "head": point} for point in CHOICES["head"]}
    wrong: dict[str, dict[str, list[bool]]] = {run: {"loo": [], "test": []} for run in runs}
    for draw in range(args.draws):
        generator = np.random.default_rng(draw)
        few, (x, y) = subset(args.data, args.classes, args.per_class, generator)
        for run, chosen in runs.items():
            model = LQFClassifier(seed=draw, **settings_of(args), **chosen)
            loo = model.fit(*few).leave_one_out()
            wrong[run]["loo"] += (loo.predicted != loo.labels).tolist()
            wrong[run]["test"] += (model.predict(x) != np.array(y)).tolist()
        print(draw, {r: [round(100 * float(np.mean(w)), 1) for w in v.values()] for r, v in wrong.items()}, flush=True)
        result = {
            "what": f"{args.data.name}, {args.backbone}, {args.size} px",
            "problem": f"{len(set(few[1]))} classes × {args.per_class} images",
            "draws": draw + 1,
            "errors": {run: {k: rate(w) for k, w in v.items()} for run, v in wrong.items()},
            "hardware": hardware(resolve_device(args.device)),
        }
        path = write(args.name, result, args.out)  # after every draw: a run takes long
    print(path)


if __name__ == "__main__":
    main()
