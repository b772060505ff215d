"""Where mini-batch SGD arrives: its distance from the exact solution of the same problem, beside the paper's formula.

Without augmentation LQF (paper) minimises a quadratic function, which conjugate gradients minimise too. After a run of
so many epochs: the test errors of both, and in the energy norm ‖v‖_H, which is the distance of the training outputs and
of the penalised weights,

    distance = ‖w_T − w*‖_H / ‖w_0 − w*‖_H,        expected = the same of E w_T by the formula
                                                   (`lqf_paper.studies.expected_distance`).

What the one has beyond the other is the noise of the mini-batches. With a cosine schedule it dies out at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lqf.curvature.preconditioner import spread
from lqf.kernels.ridge import KernelRidge
from lqf.linear.model import with_one
from lqf.runtime.precision import matmul_precision
from lqf.solvers import PCG
from lqf.solvers.solution import Solution
from lqf.training.random_views import RandomViews
from lqf.utils.progress import Progress
from lqf.utils.schedule import rate
from lqf_paper.methods.linear import Linear
from lqf_paper.methods.linear_training import Plain, Training
from lqf_paper.methods.models import Trained, products, scores, wrong
from lqf_paper.runner.registry import defaults, work
from lqf_paper.runner.workspace import Task
from lqf_paper.studies.expected_distance import Ritz, ritz

OUTPUT_TOL, MOST_PASSES = 1e-2, 200
"""Of the exact solution: the distance of its training outputs from the optimum's, relative to their norm, at most."""
LANCZOS = 48
"""Products that the formula is computed from."""
FIXED: dict[str, Any] = {"augment": "none", "leaky": True, "pooled": False}


@dataclass(frozen=True)
class Optimum:
    """The exact solution.

    Attributes:
        solution: with its certificate.
        outputs: class scores of the test images.
        size: ‖w*− w_0‖_H.
    """

    solution: Solution
    outputs: Tensor
    size: float


@work("convergence", output_tol=OUTPUT_TOL, most_passes=MOST_PASSES, lanczos=LANCZOS)
@defaults(Linear, **FIXED)
def convergence(task: Task, *, settings: dict[str, Any], images: int | None = None, seed: int = 0) -> dict[str, Any]:
    """LQF (paper) on the central crops of some images: its distance from the optimum, and the expected one."""
    workspace = task.workspace
    if images is not None:
        task = task.some(np.asarray(spread(len(task.train), images)))
    group = (task.fingerprint, "convergence", seed, settings.get("weight_decay"))
    cache = workspace.cache.under(group)
    how = Linear(**{"augment": "none", **settings}, seed=seed)
    net, preprocess, device = workspace.network(leaky=True), workspace.preprocess, workspace.device
    training = how.posed(net, task.train, preprocess, device=device, cache=cache, progress=workspace.progress)
    best = cache.get(("optimum", how.dtype), lambda: optimum(training, task))
    views = RandomViews(task.train, preprocess, how.augment, device)
    delta, losses = training.run(views, workspace.progress)
    model = Trained(training.model, delta, None, preprocess, (), 0.0, how.precision)
    outputs = scores(model, task.test) if bool(torch.isfinite(delta).all()) else None
    found = {
        "test_error": None if outputs is None else wrong(outputs, task.test),
        "test_error_of_optimum": wrong(best.outputs, task.test),
        "epochs": how.epochs,
        "diverged": outputs is None,
        "losses": [float(losses[0]), float(losses[-1])],
        "distance": None if outputs is None else distance(training, delta, best),
        "output_distance": None if outputs is None else float((outputs - best.outputs).norm() / best.outputs.norm()),
        "optimum": {
            "passes": best.solution.certificate.passes,
            "relative_residual": best.solution.certificate.relative_residual,
            "output_gap": best.solution.certificate.output_gap,
        },
        **training.facts,
    }
    name = ("ritz", how.kfac, training.facts.get("damping"), how.damping_kind, how.precision)
    spectrum = cache.get(name, lambda: spectrum_of(training, views, workspace.progress))
    eta = training.facts.get("learning_rate", how.learning_rate)
    rates = [float(eta) * rate(how.schedule, k / training.total) for k in range(training.total)]
    return found | {"expected": spectrum.distance(rates, how.momentum), "ritz": spectrum.to_dict()}


def optimum(training: Training, task: Task) -> Optimum:
    """By conjugate gradients on the same problem: products as in the training, residuals by exact passes."""
    problem, progress = training.problem, task.workspace.progress
    features = training.central_features(progress)
    head = KernelRidge.from_features(with_one(features), problem.weights)
    curvature = training.curvature(progress).body
    solver = PCG(output_tol=OUTPUT_TOL, max_passes=MOST_PASSES)
    given: dict[str, Any] = {"fast": training.quick_problem(), "tf32": training.how.precision != "float32"}
    solution = solver.solve(problem, features, head, curvature, **given, progress=progress)
    model = Trained(training.model, solution.delta, None, training.inputs.preprocess, (), 0.0, training.how.precision)
    outputs = scores(model, task.test)
    assert outputs is not None
    return Optimum(solution, outputs, energy_norm(training, solution.delta))


def distance(training: Training, delta: Tensor, best: Optimum) -> float:
    """‖w − w*‖_H over that of w_0."""
    return energy_norm(training, delta - best.solution.delta) / best.size


def energy_norm(training: Training, v: Tensor) -> float:
    """‖v‖_H."""
    problem = training.quick_problem()
    with products(training.how.precision):
        along = problem.product(v)
    return float(torch.dot(v.double(), along.double()).clamp_min(0)) ** 0.5


def spectrum_of(training: Training, views: RandomViews, progress: Progress) -> Ritz:
    """P⁻¹H as seen from b, in the scale of η."""
    problem = training.quick_problem()
    inverse = training.inverse(views, progress)
    with products(training.how.precision):
        b = problem.rhs()
        if isinstance(inverse, Plain):
            scale = inverse.scale
            return ritz(lambda v: scale * problem.product(v), b, LANCZOS, progress)

        def product(v: Tensor) -> Tensor:
            with matmul_precision(fast=True):
                moved = inverse.inverse_root(v)
            out = problem.product(moved)
            with matmul_precision(fast=True):
                return inverse.inverse_root(out)

        return ritz(product, inverse.inverse_root(b), LANCZOS, progress)
