"""Relative residual against products, with and without the K-FAC preconditioner, on the problem that a fit solved.

    python benchmarks/convergence.py RUN TRAIN [--test TEST] [--passes 31] [--weights FILE] [--device cuda]

RUN is a folder that `lqf fit` wrote: backbone, linearisation point and ridge strengths are its own. Both solves start
from zero; ``--test`` adds the test error on the way.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from hardware import hardware, write
from torch import Tensor

from lqf import LQFClassifier
from lqf.curvature import precondition
from lqf.data import load_samples
from lqf.device import resolve_device
from lqf.fit import Fit
from lqf.inputs import Inputs
from lqf.objective import Problem, Ridge
from lqf.settings import Settings
from lqf.solvers import PCG
from lqf.targets import error_rate


class TestError:
    """Test error of the iterates."""

    __test__ = False

    def __init__(self, problem: Problem, model: LQFClassifier, path: Path, every: int):
        samples = load_samples(path, classes=model.fitted_.classes)
        self.problem, self.labels, self.every = problem, torch.tensor(samples.labels), every
        own = problem.inputs
        images = model.open(samples)
        self.inputs = Inputs(images, own.preprocess, device=own.device, dtype=own.dtype, batch_size=own.batch_size)
        self.curve: list[tuple[int, float]] = []

    def __call__(self, delta: Tensor, passes: int, last: bool = False) -> None:
        """Measure it every few passes."""
        if passes % self.every == 0:
            model = self.problem.model
            parts = [model.apply(x, delta) for _, x in self.inputs.batches()]
            outputs = torch.cat([model.base(z) + jd for z, jd in parts]).cpu()
            self.curve.append((passes, error_rate(outputs, self.labels)))


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("train", type=Path)
    parser.add_argument("--test", type=Path)
    parser.add_argument("--passes", type=int, default=31)
    parser.add_argument("--every", type=int, default=10, help="passes between two measurements of the test error")
    parser.add_argument("--stronger", type=float, default=1.0, help="multiply the body's ridge strength")
    parser.add_argument("--only", choices=("kfac", "none"))
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
    ridge = Ridge(report["weight_decay"] * n, args.stronger * report["body_weight_decay"] * n)
    problem = fit.problem(fit.point(head, ridge.head)).with_ridge(ridge)
    result: dict[str, Any] = {"n": len(images), "ridge": vars(ridge), "curves": {}}
    for kind in (args.only,) if args.only else ("kfac", "none"):
        preconditioner = precondition(problem, features) if kind == "kfac" else None
        watch = TestError(problem, model, args.test, args.every) if args.test else None
        solution = PCG(tol=1e-8, max_passes=args.passes).solve(problem, preconditioner, keep=watch)
        result["curves"][kind] = {
            "residual": [[s.passes, s.residual] for s in solution.history],
            "test_error": watch.curve if watch else None,
            "seconds": solution.history[-1].seconds,
        }
        print(f"{kind}: {solution.certificate.sentence}; test error {watch.curve if watch else 'not measured'}")
    print(write(args.name, result | {"hardware": hardware(device)}, args.out))


if __name__ == "__main__":
    main()
