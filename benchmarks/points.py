"""Which head to linearise around: test error and leave-one-out error of every point, in one run per data set.

    python benchmarks/points.py DATA… [--points crossfit means …] [--views none flip] [--size 96]
        [--limit-per-class 150] [--backbone …] [--weights …] [--device cuda]

DATA is a folder with train/ and test/; `--points` without any measures the closed-form head alone. Leave-one-out should
agree with the test error where both come from one distribution; a point that has seen the labels says less than that.
"""

from __future__ import annotations

from typing import Any

from common.hardware import hardware, write
from common.options import CHOICES, Options, settings_of

from lqf import LQFClassifier
from lqf.runtime.device import resolve_device
from lqf.utils.progress import terminal_progress

KEPT = (
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


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA --points crossfit probe --size 32 --limit-per-class 6 --linearize stage7")
    out.add_data("+")
    out.add_settings("backbone", "weights", "size", "limit_per_class", "linearize", "device")
    out.add_settings("solver", "pooling", "loo")
    out.add_argument("--forms", nargs="+", default=["centred"], choices=CHOICES["form"])
    out.add_argument("--points", nargs="*", default=list(CHOICES["head"]), choices=CHOICES["head"])
    out.add_argument("--views", nargs="+", default=["none", "flip"], choices=CHOICES["views"])
    out.add_argument("--name", default="points")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    rows: list[dict[str, Any]] = []
    for folder in args.data:
        points = [{"head": p, "form": f, "solver": args.solver} for f in args.forms for p in args.points]
        for chosen in [{"views": v, **run} for v in args.views for run in [{"solver": "head"}, *points]]:
            model = LQFClassifier(**settings_of(args) | chosen)
            report = model.fit(folder / "train", progress=terminal_progress()).report_
            error = 1 - model.score(folder / "test")
            rows.append({"data": folder.name, **chosen, "test_error": error} | {k: report[k] for k in KEPT})
            loo = "–" if report["loo_error"] is None else f"{report['loo_error']:.1%} ({report['loo_level']})"
            print(f"{folder.name:22s} {chosen!s:72s} test {error:.1%}   leave-one-out {loo}", flush=True)
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
