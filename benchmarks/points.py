"""Which head to linearise around: test error and leave-one-out error of every point, in one run per data set.

    python benchmarks/points.py DATA… [--points crossfit means …] [--views none flip] [--size 96]
        [--limit-per-class 150] [--backbone …] [--weights …] [--device cuda]

DATA is a folder with train/ and test/; `--points` without any measures the closed-form head alone. Leave-one-out should
agree with the test error where both come from one distribution; a point that has seen the labels says less than that.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hardware import hardware, write

from lqf import LQFClassifier
from lqf.runtime.device import resolve_device
from lqf.settings import CHOICES
from lqf.utils.progress import terminal_progress


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--weights")
    parser.add_argument("--size", type=int)
    parser.add_argument("--limit-per-class", type=int)
    parser.add_argument("--forms", nargs="+", default=["centred"], choices=CHOICES["form"])
    parser.add_argument("--points", nargs="*", default=list(CHOICES["head"]), choices=CHOICES["head"])
    parser.add_argument("--views", nargs="+", default=["none", "flip"], choices=CHOICES["views"])
    parser.add_argument("--solver", default="auto", choices=CHOICES["solver"])
    parser.add_argument("--pooling", default="auto", choices=CHOICES["pooling"])
    parser.add_argument("--loo", default="auto", choices=CHOICES["loo"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--name", default="points")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    common = {n: getattr(args, n) for n in ("weights", "size", "limit_per_class", "pooling", "loo", "device")}
    for folder in args.data:
        points = [{"head": p, "form": f, "solver": args.solver} for f in args.forms for p in args.points]
        for options in [{"views": v, **run} for v in args.views for run in [{"solver": "head"}, *points]]:
            model = LQFClassifier(args.backbone, **common, **options)
            report = model.fit(folder / "train", progress=terminal_progress()).report_
            error = 1 - model.score(folder / "test")
            kept = (
                "n",
                "solver",
                "pooling",
                "views",
                "loo_error",
                "loo_level",
                "loo_note",
                "relative_residual",
                "passes",
                "seconds",
            )
            rows.append({"data": folder.name, **options, "test_error": error} | {k: report[k] for k in kept})
            loo = "–" if report["loo_error"] is None else f"{report['loo_error']:.1%} ({report['loo_level']})"
            print(f"{folder.name:22s} {options!s:72s} test {error:.1%}   leave-one-out {loo}", flush=True)
            result = {
                "backbone": args.backbone,
                "size": args.size,
                "rows": rows,
                "hardware": hardware(resolve_device(args.device)),
            }
            path = write(args.name, result, args.out)  # after every row: a run takes long
    print(path)


if __name__ == "__main__":
    main()
