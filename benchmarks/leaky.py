"""Leaky ReLU or ReLU before the network is made linear: what leave-one-out on the training images says, and the test.

    python benchmarks/leaky.py DATA... [--classes 10] [--per-class 20] [--size 96] [--draws 2]

Every DATA is a folder with train/ and test/. The closed-form head sees all training images; the whole linear model, by
the exact dense solver, some random images of some random classes. Both have average pooling, one view, and strengths by
leave-one-out. The difference is leaky minus plain, in points of the error and as a share of the squared error of the
left-out outputs, which is less noisy; `decided` counts on how many data sets leaky is the better one by that.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
from common.hardware import hardware, write
from common.options import Options, settings_of
from common.subset import Labelled, linked, subset
from common.tasks import mean

from lqf import LQFClassifier
from lqf.fitting import FittedModel
from lqf.linear.targets import encode
from lqf.runtime.device import resolve_device

NAMES = ("backbone", "weights", "size", "device")
WAYS = {"leaky": True, "plain": False}


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32 --classes 3 --per-class 6 --draws 1")
    out.add_data("+")
    out.add_settings(*NAMES)
    out.add_argument("--classes", type=int, default=10, help="of the whole linear model (default: 10)")
    out.add_argument("--per-class", type=int, default=20, help="its images of each (default: 20)")
    out.add_argument("--draws", type=int, default=2, help="subsets of each data set (default: 2)")
    out.add_argument("--heads-only", action="store_true", help="closed-form heads alone")
    return out


def judged(train: Path, test: Labelled, **settings: Any) -> dict[str, float]:
    """Error and mean squared error out of sample, and the test error."""
    model = LQFClassifier(**settings, pooling="avg", views="none", verbose=0, keep_for_questions="none").fit(train)
    fitted = model.fitted_
    assert isinstance(fitted, FittedModel)
    assert fitted.loo is not None
    loo, alpha = fitted.loo, model.alpha
    known = loo.known
    targets = encode(loo.labels[known], len(model.classes_), alpha)
    labels = np.array(test[1])
    return {
        "error": loo.error,
        "squared error": float(((loo.outputs[known] - targets) ** 2).sum(1).mean() / alpha**2),
        "test error": float((model.predict(test[0]) != labels).mean()),
    }


def compared(train: Path, test: Labelled, **settings: Any) -> dict[str, Any]:
    """Either activation, and the difference."""
    by = {name: judged(train, test, leaky=leaky, **settings) for name, leaky in WAYS.items()}
    leaky, plain = by["leaky"], by["plain"]
    return by | {
        "points": 100 * (leaky["error"] - plain["error"]),
        "squared": leaky["squared error"] / plain["squared error"] - 1,
        "test points": 100 * (leaky["test error"] - plain["test error"]),
    }


def drawn(data: Path, draw: int, args: Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    """The whole linear model of one subset."""
    train, test = subset(data, args.classes, args.per_class, np.random.default_rng([draw, len(data.name)]))
    with tempfile.TemporaryDirectory() as folder:
        return compared(linked(train, Path(folder)), test, solver="dense", **settings)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the data sets, and what leave-one-out decides."""
    out: dict[str, Any] = {}
    for model in ("head", "linear model"):
        of = [row[model] for row in rows if model in row]
        if of:
            keys = ("points", "squared", "test points")
            out[model] = {key: mean(float(np.mean([d[key] for d in one])) for one in of) for key in keys}
            out[model]["decided"] = {
                "leaky": sum(bool(np.mean([d["squared"] for d in one]) < 0) for one in of),
                "of": len(of),
            }
    return out


def main() -> None:
    """Measure and write JSON, whole after every data set."""
    args = options().parse()
    device, settings = resolve_device(args.device), settings_of(args)
    rows: list[dict[str, Any]] = []
    for data in args.data:
        _, test = subset(data, None, None, np.random.default_rng(0))
        row: dict[str, Any] = {"data": data.name, "head": [compared(data / "train", test, solver="head", **settings)]}
        if not args.heads_only:
            row["linear model"] = [drawn(data, d, args, settings) for d in range(args.draws)]
        rows.append(row)
        shown = {m: {k: [round(d[k], 3) for d in row[m]] for k in ("points", "squared")} for m in row if m != "data"}
        print(data.name, shown, flush=True)
        found = {"rows": rows, "mean": summary(rows), "hardware": hardware(device)}
        write(f"leaky-{args.backbone.replace(':', '-')}-{args.size or 'own'}-{device.type}", found, args.out)
    print(summary(rows))


if __name__ == "__main__":
    main()
