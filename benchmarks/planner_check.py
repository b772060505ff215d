"""Whether a fit costs what the planner says: predicted over actual time and memory, stage by stage, over a grid.

    python benchmarks/planner_check.py                                                   # small, on the CPU
    python benchmarks/planner_check.py --device cpu                                      # 16 cases, on the CPU
    python benchmarks/planner_check.py --backbones resnet50 --weights r50.safetensors --device cuda --sizes 224 \\
        --n 500 2000 --classes 5 20 --solvers dense pcg

Solvers are predicted with the number of passes they then took, since that number depends on the data. Memory is the
peak beyond what was held before the planned stages: of the device, or of the process on a CPU.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from dataclasses import replace
from typing import Any

from common.hardware import hardware, write
from common.options import Options
from common.peak import measured
from common.problem import outline
from common.synthetic import opened

from lqf.backbones import load_backbone
from lqf.curvature.preconditioner import draws_for
from lqf.errors import LQFError
from lqf.fitting.pose import with_strengths
from lqf.runtime.device import resolve_device
from lqf.settings import Settings
from lqf.solvers.planner import cost_dense, cost_pcg, plan
from lqf.solvers.rates import Rates
from lqf.utils.text import byte_count


def check(args: argparse.Namespace, backbone_name: str, n: int, classes: int, size: int, solver: str) -> dict[str, Any]:
    """Predict and run one fit."""
    device = resolve_device(args.device)
    backbone = load_backbone(backbone_name, weights=args.weights)
    preprocess = backbone.preprocess(size=size)
    problem = outline(Settings(solver=solver), backbone, opened(n, classes, preprocess), preprocess, device)
    context, quadratic, engine = problem.context, problem.quadratic, problem.encoder.engine
    with measured(device) as planning:
        fast, exact = engine.fast(quadratic), engine.measured(quadratic)
        rates = Rates.measure(quadratic, fast, exact, draws=draws_for(context.settings.draws, n))
    memory = context.free_bytes()
    with measured(device) as whole:  # inner ones would set its peak back, so the stages are timed by the fit
        problem = with_strengths(replace(problem, plan=plan(quadratic, solver, rates, memory)))
        solution = problem.solve()
    problem.release()
    cost = cost_pcg if solver == "pcg" else cost_dense
    chosen = cost(quadratic, rates, memory, passes=solution.certificate.passes)
    seconds = context.clock.seconds
    seconds["solve"] -= seconds.get("curvature", 0.0)  # made when the solve asks for it
    actual = {k: seconds[k] for k in chosen.stages}
    total = sum(actual.values())
    return {
        "case": {"backbone": backbone_name, "n": n, "classes": classes, "size": size, "solver": solver},
        "planning": planning.seconds,
        "passes": solution.certificate.passes,
        "predicted": chosen.stages,
        "actual": actual,
        "time, predicted over actual": chosen.seconds / total,
        "stages, predicted over actual": {k: chosen.stages[k] / v for k, v in actual.items() if v > 0},
        "predicted bytes": chosen.bytes,
        "actual bytes": whole.beyond,
        "memory, predicted over actual": chosen.bytes / whole.beyond if whole.beyond > 0 else None,
    }


def show(row: dict[str, Any]) -> str:
    """One line for a person."""
    stages = ", ".join(f"{k} {row['predicted'][k]:.1f}/{row['actual'][k]:.1f}" for k in row["predicted"])
    case = " ".join(str(v) for v in row["case"].values())
    memory = row["memory, predicted over actual"]
    return (
        f"{case:42s} time {row['time, predicted over actual']:.2f} ({stages} s; planning {row['planning']:.1f} s), "
        f"memory {'–' if memory is None else f'{memory:.2f}'} "
        f"({byte_count(row['predicted bytes'])}/{byte_count(row['actual bytes'])})"
    )


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "--n 24 --classes 3 --sizes 32")
    out.add_settings("weights", device="cpu")
    out.add_argument("--backbones", nargs="+", default=["efficientnet_lite0"])
    out.add_argument("--n", type=int, nargs="+", default=[60, 150])
    out.add_argument("--classes", type=int, nargs="+", default=[2, 5])
    out.add_argument("--sizes", type=int, nargs="+", default=[64, 128])
    out.add_argument("--solvers", nargs="+", default=["dense", "pcg"], choices=["dense", "pcg"])
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    rows: list[dict[str, Any]] = []
    for case in itertools.product(args.backbones, args.n, args.classes, args.sizes, args.solvers):
        try:
            rows.append(check(args, *case))
        except LQFError as error:
            print(f"{case}: {error}", flush=True)
            continue
        print(show(rows[-1]), flush=True)
        ratios = [r["time, predicted over actual"] for r in rows]
        within = sum(0.75 <= r <= 1.25 for r in ratios)
        result = {"rows": rows, "time within 25 %": [within, len(ratios)]}
        path = write(
            f"planner_check-{args.device}", {**result, "hardware": hardware(resolve_device(args.device))}, args.out
        )
    print(f"time within 25 %: {within} of {len(ratios)}; median {statistics.median(ratios):.2f}\n{path}")


if __name__ == "__main__":
    main()
