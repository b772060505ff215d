"""Relative residual against products on the problem that a fit solved, from zero, by three ways.

    python benchmarks/convergence.py RUN TRAIN [--passes 30] [--weights FILE] [--device cuda]

RUN is a folder that `lqf fit` wrote: backbone, linearisation point and ridge strengths are its own. The ways: conjugate
gradients on head and body together without any preconditioning; with the head eliminated; and with the K-FAC
preconditioner besides, which is what `lqf fit` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hardware import hardware, write
from lqf.solvers.cg import conjugate_gradients
from torch import Tensor

from lqf import LQFClassifier
from lqf.curvature import body_curvature
from lqf.data import load_samples
from lqf.fitting.pipeline import Fit
from lqf.linear.problem import QuadraticProblem, Ridge
from lqf.runtime.device import resolve_device
from lqf.runtime.precision import matmul_precision
from lqf.settings import Settings
from lqf.solvers import PCG
from lqf.solvers.solution import Step, norm

TOL, BAR = 1e-8, 2e-2


class Plain:
    """Head and body together, as they are."""

    def __init__(self, problem: QuadraticProblem):
        self.problem = problem

    def product(self, v: Tensor) -> Tensor:
        """H v."""
        with matmul_precision(fast=True):
            return self.problem.product(v)

    def residual(self, x: Tensor) -> Tensor:
        """b − H x."""
        with matmul_precision(fast=False):
            return self.problem.negative_gradient(x)


def plain(problem: QuadraticProblem, passes: int) -> tuple[Step, ...]:
    """The course of conjugate gradients without preconditioning."""
    b = problem.rhs()
    cg = conjugate_gradients(Plain(problem), lambda v: v, problem.zero(), b, norm(b), tol=TOL, max_passes=passes)
    return cg.history


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("train", type=Path)
    parser.add_argument("--passes", type=int, default=30)
    parser.add_argument("--weights")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--name", default="convergence")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    model = LQFClassifier.load(args.run, weights=args.weights, device=args.device)
    report, images = model.report_, model.open(load_samples(args.train))
    settings = Settings(head=model.head, form=model.form, solver="pcg", seed=model.seed)
    device = resolve_device(args.device)
    fit = Fit(settings, model.fitted_.backbone, images, model.fitted_.preprocess, device)
    features = fit.features()
    head = fit.closed_form_head(features)
    n = float(fit.rows.weights.sum())
    ridge = Ridge(report["weight_decay"] * n, report["body_weight_decay"] * n)
    problem = fit.problem(fit.point(head, ridge.head)).with_ridge(ridge)
    result: dict[str, Any] = {"n": len(images), "ridge": vars(ridge), "curves": {}}
    pcg, fast = PCG(tol=TOL, max_passes=args.passes, refresh=10), fit.engine.fast(problem)
    ways: dict[str, Callable[[], tuple[Step, ...]]] = {
        "head eliminated, K-FAC": lambda: (
            pcg.solve(problem, features, head.ridge, body_curvature(problem), fast=fast).history
        ),
        "head eliminated": lambda: pcg.solve(problem, features, head.ridge, fast=fast).history,
        "none": lambda: plain(problem, args.passes),
    }
    for way, solve in ways.items():
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
