"""How near the kernel averaged over the outputs comes to exact information, and to the order in which images leave.

    python benchmarks/averaged_information.py DATA [--classes 6] [--per-class 10] [--size 64] [--decays 5,300 0.3,10]

DATA is a folder with train/ and test/. A small problem is solved densely, so that information and refits are exact, and
then asked as if it had been solved by PCG: information on the training images, and who leaves first, both by the
averaged kernel. Rank correlation with the exact values, and test errors (exact refits) after half of the training
images have left.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from common.hardware import hardware, write
from common.options import Options, settings_of
from common.subset import Labelled, subset
from torch import Tensor

from lqf import LQFClassifier
from lqf.analysis.curve import remaining
from lqf.linear.targets import error_rate
from lqf.runtime.device import resolve_device

DROPPED = 0.5
DRAWS = 20


def ranks_agree(a: Tensor, b: Tensor) -> float:
    """Spearman's correlation."""
    return float(np.corrcoef(*(t.argsort().argsort().double().numpy() for t in (a, b)))[0, 1])


def measured(train: Labelled, test: Labelled, args: argparse.Namespace, decays: dict[str, float]) -> dict[str, Any]:
    """One problem, with its own weight decays or given ones."""
    model = LQFClassifier(solver="dense", views="none", **settings_of(args), **decays).fit(*train)
    exact, solved = model.analyse(*train), model.analyse(*train, method="pcg")
    estimated, truth, tested = solved.information().values, exact.information().values, exact.queries(*test)

    def error(order: Tensor) -> float:
        return error_rate(exact.method.refitted(tested, remaining(exact.units, order, DROPPED)), tested.labels)

    generator = torch.Generator().manual_seed(0)
    random = [error(torch.randperm(len(train[0]), generator=generator)) for _ in range(DRAWS)]
    return {
        "decays": {k: model.report_[k] for k in ("weight_decay", "body_weight_decay") if k in model.report_} | decays,
        "rank_correlation": ranks_agree(estimated, truth),
        "sum_over_exact": float(estimated.sum() / truth.sum()),
        "error_without_half": {
            "random": float(np.mean(random)),
            "random_deviation": float(np.std(random, ddof=1)),
            "least, exact": error(exact.leaving()),
            "least, averaged kernel": error(solved.leaving()),
            "least, exact, ranked once": error(truth.argsort(stable=True)),
        },
    }


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --per-class 5 --size 32 --linearize stage7 --decays 5,300")
    out.add_data()
    out.add_settings("backbone", "weights", "linearize", "device", size=64, pooling="avg")
    out.add_argument("--classes", type=int, default=6)
    out.add_argument("--per-class", type=int, default=10)
    out.add_argument("--decays", nargs="*", default=[], help="pairs HEAD,BODY in addition to the automatic ones")
    out.add_argument("--name", default="averaged_information")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    generator = np.random.default_rng(0)
    train, test = subset(args.data, args.classes, args.per_class, generator)
    cases: list[dict[str, float]] = [{}]
    cases += [
        dict(zip(("weight_decay", "body_weight_decay"), map(float, d.split(",")), strict=True)) for d in args.decays
    ]
    found = []
    for decays in cases:
        found.append(measured(train, test, args, decays))
        print(found[-1], flush=True)
    result = {
        "what": f"{args.data.name}, {args.backbone}, {args.size} px, {args.pooling} pooling",
        "problem": f"{len(set(train[1]))} classes, {len(train[0])} training, {len(test[0])} test images",
        "cases": found,
        "hardware": hardware(resolve_device(args.device)),
    }
    print(write(args.name, result, args.out))


if __name__ == "__main__":
    main()
