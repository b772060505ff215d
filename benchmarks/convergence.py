"""Relative residual against products on the problem that a fit solved, from zero, by three ways.

    python benchmarks/convergence.py RUN TRAIN [--passes 30] [--weights FILE] [--device cuda]

RUN is a folder that `lqf fit` wrote: backbone, linearisation point and ridge strengths are its own. The ways: conjugate
gradients on head and body together without any preconditioning; with the head eliminated; and with the head eliminated
and the K-FAC preconditioner, which is what `lqf fit` does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common.hardware import hardware, write
from common.options import Options
from torch import Tensor

from lqf import LQFClassifier
from lqf.curvature import KFAC, body_curvature
from lqf.fitting import Context, TrainingProblem
from lqf.fitting.reopen import reopen
from lqf.fitting.training_data import open_training
from lqf.linear.problem import QuadraticProblem
from lqf.runtime.device import resolve_device
from lqf.runtime.precision import matmul_precision
from lqf.solvers import PCG
from lqf.solvers.block_cg import conjugate_gradients
from lqf.solvers.solution import Step, norm

TOL, BAR = 1e-8, 2e-2
REFRESH = 10
"""Steps between true residuals."""


class Plain:
    """Head and body together, as they are, with one right-hand side."""

    def __init__(self, problem: QuadraticProblem):
        self.problem = problem

    def product(self, v: Tensor) -> Tensor:
        """H v, (1, D)."""
        with matmul_precision(fast=True):
            return self.problem.product(v[0])[None]

    def residual(self, x: Tensor, which: Tensor) -> Tensor:
        """b − H x, (1, D)."""
        with matmul_precision(fast=False):
            return self.problem.negative_gradient(x[0])[None]


def plain(problem: QuadraticProblem, passes: int) -> tuple[Step, ...]:
    """The course of conjugate gradients without preconditioning."""
    b = problem.rhs()
    size = torch.tensor([norm(b)], dtype=torch.float64, device=b.device)
    start = problem.zero()[None]
    return conjugate_gradients(
        Plain(problem), lambda v: v, start, b[None], size, tol=TOL, max_passes=passes, refresh=REFRESH
    ).history


def ways(problem: TrainingProblem, passes: int) -> dict[str, Callable[[], tuple[Step, ...]]]:
    """Name -> the course of a solve."""
    quadratic, pcg = problem.quadratic, PCG(tol=TOL, max_passes=passes, refresh=REFRESH)
    fast = problem.encoder.engine.fast(quadratic)

    def eliminated(curvature: KFAC | None) -> tuple[Step, ...]:
        return pcg.solve(quadratic, problem.features, problem.head.ridge, curvature, fast=fast).history

    return {
        "head eliminated, K-FAC": lambda: eliminated(body_curvature(quadratic)),
        "head eliminated": lambda: eliminated(None),
        "none": lambda: plain(quadratic, passes),
    }


def options() -> Options:
    """The command line."""
    out = Options(__doc__, "DATA/run DATA/train --passes 6")
    out.add_argument("run", type=Path)
    out.add_argument("train", type=Path)
    out.add_settings("weights", "device")
    out.add_argument("--passes", type=int, default=30)
    out.add_argument("--name", default="convergence")
    return out


def main() -> None:
    """Measure and write JSON."""
    args = options().parse()
    if args.small:
        small = LQFClassifier(size=32, linearize="stage7", solver="pcg", loo="none", device=args.device)
        small.fit(args.train).save(args.run)
    fitted = LQFClassifier.load(args.run, weights=args.weights).fitted_
    device = resolve_device(args.device)
    problem = reopen(fitted, open_training(fitted, args.train), Context(fitted.settings, device))
    result: dict[str, Any] = {"n": len(problem.data), "ridge": vars(problem.ridge), "curves": {}}
    for way, solve in ways(problem, args.passes).items():
        history = solve()
        within = next((s.passes for s in history if s.residual is not None and s.residual <= BAR), None)
        result["curves"][way] = {
            "residual": [[s.passes, s.residual] for s in history],
            f"passes to {BAR}": within,
            "seconds": history[-1].seconds,
        }
        print(f"{way}: {history[-1].residual:.4f} after {history[-1].passes} passes, {BAR} after {within}", flush=True)
    print(write(args.name, result | {"hardware": hardware(device)}, args.out))


if __name__ == "__main__":
    main()
