"""Whether a fit costs what the planner says: predicted over actual time and memory, stage by stage, over a grid.

    python benchmarks/planner_check.py                                                   # small, on the CPU
    python benchmarks/planner_check.py --backbones resnet50 --weights r50.safetensors --device cuda --sizes 224 \
        --n 500 2000 --classes 5 20 --solvers dense pcg

Solvers are predicted with the number of passes they then took, since that number depends on the data. Memory is the
peak beyond what was held before the planned stages: of the device, or of the process on a CPU.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from pathlib import Path
from typing import Any

from hardware import hardware, write
from lqf.fitting.iterate import Iterate
from peak import measured
from synthetic import opened

from lqf.backbones import load_backbone
from lqf.curvature.preconditioner import draws_for
from lqf.data import Preprocess
from lqf.errors import LQFError
from lqf.fast.cache_budget import keep_activations
from lqf.fitting.pipeline import Fit
from lqf.linear.problem import Ridge
from lqf.runtime.device import resolve_device
from lqf.runtime.memory import available_bytes
from lqf.settings import Settings
from lqf.solvers import Dense
from lqf.solvers.planner import cost_dense, cost_pcg, plan
from lqf.solvers.rates import Rates
from lqf.utils.text import byte_count


def check(args: argparse.Namespace, backbone_name: str, n: int, classes: int, size: int, solver: str) -> dict[str, Any]:
    """Predict and run one fit."""
    device = resolve_device(args.device)
    backbone = load_backbone(backbone_name, weights=args.weights)
    preprocess = Preprocess(size=size, mean=backbone.mean, std=backbone.std)
    fit = Fit(Settings(solver=solver, pooling="avg"), backbone, opened(n, classes, preprocess), preprocess, device)
    features = fit.features()
    head = fit.closed_form_head(features)
    problem = fit.problem(fit.point(head, 1.0))
    with measured(device) as planning:
        exact = fit.engine.measured(problem)
        rates = Rates.measure(problem, fit.engine.fast(problem), exact, draws=draws_for(fit.settings.draws, n))
    memory = available_bytes(device)
    chosen = plan(problem, solver, rates, memory)
    actual: dict[str, float] = {}
    with measured(device) as whole:  # inner ones would set its peak back, so the stages are timed by the fit
        with fit._timed("kernel"):
            kernels = fit.kernels(problem, features, chosen)
        with fit._timed("weight decay"):
            choice = fit.choose(kernels, 1.0, None)
        problem = problem.with_ridge(Ridge(choice.mu, choice.mu * choice.omega))
        with fit._timed("solve"):
            if solver == "dense":
                quick = fit.engine.measured(problem)
                kernel = kernels.factorise(choice.omega)
                solution = Dense().solve(quick, features, kernel, b_norm=kernels.rhs_norm())
            else:
                iterate = Iterate(fit.settings, None, fit.world, fit.progress)
                with fit._timed("curvature"):
                    kfac = iterate.curvature(problem)
                fast, exact = fit.engine.fast(problem), fit.engine.measured(problem)
                keep_activations(fast, exact)
                solution = iterate.pcg(exact, fast, features, head.ridge, kfac, None)
    cost = cost_pcg if solver == "pcg" else cost_dense
    chosen = cost(problem, rates, memory, passes=solution.certificate.passes)
    if solver == "pcg":
        fit.seconds["solve"] -= fit.seconds["curvature"]
    actual = {k: fit.seconds[k] for k in chosen.stages}
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


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbones", nargs="+", default=["efficientnet_lite0"])
    parser.add_argument("--weights", help="of the backbone, where there is one; `random` will do")
    parser.add_argument("--n", type=int, nargs="+", default=[60, 150])
    parser.add_argument("--classes", type=int, nargs="+", default=[2, 5])
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--solvers", nargs="+", default=["dense", "pcg"], choices=["dense", "pcg"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
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
