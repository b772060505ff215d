"""Coverage and size of conformal sets where the test images certainly come as the training images came: drawn anew.

    python benchmarks/coverage.py DATA… --size 128 --features FOLDER

Every DATA is a folder with train/ and test/. All its images are mixed, and divided five times into as many training and
test images as there were, of every class alike. The coverage on the test set that was given (`benchmarks/conformal.py`)
minus the one here is what its shift costs. Features and head as there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.embedded import Part, embedded, head_on, inputs
from common.hardware import hardware, write
from common.options import Options
from common.tasks import mean
from conformal import COVERAGES, by_split, of_sets

DRAWS = 5


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --size 32")
    out.add_data("+")
    out.add_settings(backbone="efficientnet_lite0", size=128)
    out.add_argument("--features", type=Path, help="folder that keeps the features for the next run")
    return out


def mixed(train: Part, test: Part, seed: int) -> tuple[Part, Part]:
    """All images divided anew, as many of every class to learn from as before in proportion."""
    both = Part(np.concatenate([train.x, test.x]), np.concatenate([train.y, test.y]))
    generator, share, first = np.random.default_rng(seed), len(train) / (len(train) + len(test)), []
    for k in np.unique(both.y):
        rows = generator.permutation(np.flatnonzero(both.y == k))
        first.append(rows[: int(share * len(rows) + generator.random())])
    chosen = np.sort(np.concatenate(first))
    return both.take(chosen), both.take(np.setdiff1d(np.arange(len(both)), chosen))


def drawn(train: Part, test: Part, seed: int) -> dict[str, dict[str, Any]]:
    """Sets of one division by leave-one-out and by halves."""
    learn, held = mixed(train, test, seed)
    model = head_on(learn)
    model.analyse(inputs(learn.x))
    found: dict[str, dict[str, Any]] = {}
    for way in ("jackknife+", "jackknife"):
        sets = model.predict_set(inputs(held.x), way=way)
        found[way] = {str(c): of_sets(sets.at(c).included, held.y) for c in COVERAGES}
    return {**found, "split": by_split(learn, held, divisions=1)}


def measured(train: Part, test: Part) -> dict[str, Any]:
    """Means over the divisions, with their standard errors."""
    every = [drawn(train, test, seed) for seed in range(DRAWS)]
    result: dict[str, Any] = {"train": len(train), "test": len(test), "draws": DRAWS}
    for way in every[0]:
        result[way] = {
            str(c): {k: mean(row[way][str(c)][k] for row in every) for k in ("covered", "size")} for c in COVERAGES
        }
    return result


def main() -> None:
    """Measure, print, write."""
    args = options().parse()
    result: dict[str, Any] = {"hardware": hardware(torch.device("cpu")), "data": {}}
    for data in args.data:
        row = measured(*embedded(data, args.features, backbone=args.backbone, size=args.size))
        result["data"][data.name] = row
        for way in ("jackknife+", "jackknife", "split"):
            sets = [row[way][str(c)] for c in COVERAGES]
            print(data.name, way, [(s["covered"]["mean"], s["size"]["mean"]) for s in sets], flush=True)
        print(write("coverage", result, args.out), flush=True)


if __name__ == "__main__":
    main()
