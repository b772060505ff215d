"""Data that arrive in steps: which images are there at every step, and every method's way to keep up with them.

LQF solves the problem of all images so far, from where its last solution was or from nothing: the optimum is the same,
what differs is the number of passes. Ordinary fine-tuning goes on from its last network, or starts again.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lqf.linear.targets import error_rate
from lqf.settings import Settings
from lqf.training.finetune import FineTuning
from lqf.training.network import Network
from lqf_paper.methods.linear import Linear
from lqf_paper.methods.models import error
from lqf_paper.runner.registry import defaults, work
from lqf_paper.runner.workspace import Task
from lqf_paper.studies.problem import LQF, lqf_problem


def arrivals(labels: np.ndarray, steps: int, seed: int = 0) -> list[np.ndarray]:
    """Ascending positions of the images that are there after each of ``steps`` equal steps; every class in proportion.

    An image's turn is its place in a random order of its class, over the size of the class.
    """
    rng = np.random.default_rng(seed)
    turn = np.empty(len(labels))
    for y in np.unique(labels):
        rows = np.flatnonzero(labels == y)
        turn[rng.permutation(rows)] = (np.arange(len(rows)) + rng.random()) / len(rows)
    order = np.argsort(turn, kind="stable")
    return [np.sort(order[: round(len(labels) * (t + 1) / steps)]) for t in range(steps)]


@work("online lqf", version=2)
@defaults(Settings, **LQF)
def online_lqf(task: Task, *, steps: int, settings: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """LQF after every step: error, and passes from the last solution (`passes`) and from zero (`passes_cold`).

    `residual` is the larger measured relative residual of the two solutions, `difference` how far their outputs on the
    test images are apart, relative to their size.
    """
    results: list[dict[str, Any]] = []
    start: Tensor | None = None
    for rows in arrivals(task.train.samples.labels, steps, seed):
        here, start = _solved_step(task.some(rows), {"seed": seed, **settings}, start)
        results.append(here)
    return {"test_error": results[-1]["test_error"], "steps": results}


def _solved_step(now: Task, settings: dict[str, Any], start: Tensor | None) -> tuple[dict[str, Any], Tensor]:
    """One step of LQF, and the body it ends with; nothing else of it stays in memory."""
    workspace, net = now.workspace, copy.deepcopy(now.workspace.network(leaky=True))
    problem = lqf_problem(
        net, now.train, workspace.preprocess, workspace.device, progress=workspace.progress, **settings
    )
    tol = problem.context.settings.tol  # a relative residual
    cold = problem.solve(tol=tol)
    warm = cold if start is None else problem.solve(start, tol=tol)
    outputs, others = (problem.outputs(now.test, s.delta) for s in (warm, cold))
    found = {
        "n": len(now.train),
        "test_error": error_rate(outputs, torch.tensor(now.test.samples.labels)),
        "passes": warm.certificate.passes,
        "passes_cold": cold.certificate.passes,
        "residual": max(s.certificate.relative_residual for s in (warm, cold)),
        "difference": float((outputs - others).norm() / others.norm()),
    }
    problem.release()
    return found, problem.body(warm)


@work("online nlft", version=2)
@defaults(FineTuning, without=("seed", "precision"))
def online_nlft(
    task: Task,
    *,
    steps: int,
    settings: dict[str, Any],
    go_on: bool,
    first: int | None = None,
    least_steps: int = 0,
    seed: int = 0,
) -> dict[str, Any]:
    """Ordinary fine-tuning after every step, on all images so far: from the last network (``go_on``) or from scratch.

    Every step is trained to the end of its schedule. On few images there are more epochs, so that it takes
    ``least_steps`` of the optimiser. With ``first``, only so many of the steps are carried out.
    """
    workspace, results = task.workspace, []
    how = FineTuning(seed=seed, precision=workspace.precision, **settings)
    start: Network | None = None
    for rows in arrivals(task.train.samples.labels, steps, seed)[:first]:
        now, batch = task.some(rows), min(how.batch_size, len(rows))
        here = replace(how, epochs=max(how.epochs, -(-least_steps * batch // len(rows))))
        tuned = here.fit(
            workspace.network(leaky=False),
            now.train,
            workspace.preprocess,
            device=workspace.device,
            start=start if go_on else None,
            progress=workspace.progress,
        )
        start = tuned.network
        results.append({"n": len(rows), "test_error": error(tuned, task.test), "passes": len(tuned.losses)})
    return {"test_error": results[-1]["test_error"], "steps": results}


@work("online lqf by steps")
@defaults(Linear, leaky=True, kfac=True, pooled=False)
def online_lqf_by_steps(
    task: Task, *, steps: int, settings: dict[str, Any], go_on: bool, seed: int = 0
) -> dict[str, Any]:
    """LQF (paper) after every step, on all images so far: from its last weights (``go_on``) or from zero.

    Its head at the linearisation point is random and stays, so that the weights mean the same at every step.
    """
    workspace, results = task.workspace, []
    how = Linear(**{"kfac": True, **settings}, seed=seed)
    delta: Tensor | None = None
    for rows in arrivals(task.train.samples.labels, steps, seed):
        trained = how.fit(
            workspace.network(leaky=True),
            task.some(rows).train,
            workspace.preprocess,
            device=workspace.device,
            start=delta if go_on else None,
            progress=workspace.progress,
        )
        delta = trained.delta
        results.append({"n": len(rows), "test_error": error(trained, task.test), "passes": len(trained.losses)})
    return {"test_error": results[-1]["test_error"], "steps": results}
