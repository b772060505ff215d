"""Images of other data sets told from a data set's own by how much the training images leave open.

    python benchmarks/novelty.py DATA… --size 128 --features FOLDER

Every DATA is a folder with train/ and test/; there are two at least. A closed-form head on the features of
EfficientNet-Lite0 is fitted to each, and asked about images of its own and of all others:

    chosen    by training images alone: fitted to one half, its own images are the other half, strange ones are the
              training images of other data sets; here the two metrics were compared
    tested    fitted to all training images, measured once on test images

`relative` is the variance of the outputs over that before any training, which `LQFClassifier.novelty` takes; `absolute`
is the variance itself; `confidence` is one minus the probability of the predicted class. `auc`: how often a strange
image has the larger value; `alarms` and `found`: the share of own and of strange images with p ≤ 0.05.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.embedded import Part, embedded, halves, head_on, inputs
from common.hardware import hardware, write
from common.options import Options

from lqf.evaluation.intervals import wilson

AT = 0.05


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA DATA --size 32")
    out.add_data("+")
    out.add_settings(backbone="efficientnet_lite0", size=128)
    out.add_argument("--features", type=Path, help="folder that keeps the features for the next run")
    return out


def auc(own: np.ndarray, strange: np.ndarray) -> float:
    """How often a strange image has the larger value."""
    larger = (strange[:, None] > own).mean() + 0.5 * (strange[:, None] == own).mean()
    return round(float(larger), 4)


def told_apart(train: Part, own: Part, others: dict[str, Part]) -> dict[str, Any]:
    """Own images and those of every other data set."""
    model = head_on(train)
    analysis = model.analyse(inputs(train.x))

    def values(part: Part) -> tuple[dict[str, np.ndarray], np.ndarray]:
        queries = analysis.queries(inputs(part.x))
        novelty, spread = model.novelty(queries), model.predict_std(queries)
        p = model.predict_proba(inputs(part.x)).max(1)
        return {
            "relative": novelty.unexplained.numpy(),
            "absolute": spread.value.square().mean(1).numpy(),
            "confidence": 1 - p,
        }, novelty.p_values

    mine, p = values(own)
    alarms = float((p <= AT).mean())
    low, high = wilson(alarms, len(own))
    strange = {name: values(part) for name, part in others.items()}
    return {
        "n": len(own),
        "alarms": round(alarms, 4),
        "alarms_interval": [round(low, 4), round(high, 4)],
        "others": {
            name: {
                "n": len(q),
                "found": round(float((q <= AT).mean()), 4),
                "auc": {metric: auc(mine[metric], theirs[metric]) for metric in mine},
            }
            for name, (theirs, q) in strange.items()
        },
    }


def mean(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Over all pairs of data sets."""
    pairs = [other for row in rows for other in row["others"].values()]
    return {
        "alarms": round(float(np.mean([row["alarms"] for row in rows])), 4),
        "found": round(float(np.mean([pair["found"] for pair in pairs])), 4),
        "auc": {m: round(float(np.mean([pair["auc"][m] for pair in pairs])), 4) for m in pairs[0]["auc"]},
        "least_auc": {m: min(pair["auc"][m] for pair in pairs) for m in pairs[0]["auc"]},
    }


def main() -> None:
    """Measure, print, write."""
    args = options().parse()
    options_of: dict[str, Any] = {"backbone": args.backbone, "size": args.size}
    names = [f"{i} {data.name}" if args.small else data.name for i, data in enumerate(args.data)]
    parts = {name: embedded(data, args.features, **options_of) for name, data in zip(names, args.data, strict=True)}
    result: dict[str, Any] = {"hardware": hardware(torch.device("cpu")), "chosen": {}, "tested": {}}
    for name, (train, test) in parts.items():
        first, second = halves(train.y, seed=0)
        others = {n: p for n, p in parts.items() if n != name}
        result["chosen"][name] = told_apart(train.take(first), train.take(second), {n: p[0] for n, p in others.items()})
        result["tested"][name] = told_apart(train, test, {n: p[1] for n, p in others.items()})
        print(name, result["tested"][name]["alarms"], flush=True)
    result["mean"] = {kind: mean(list(result[kind].values())) for kind in ("chosen", "tested")}
    print(result["mean"])
    print(write("novelty", result, args.out), flush=True)


if __name__ == "__main__":
    main()
