"""Weight decay: solved anew or from another one's solution, and found by the slope of a validation loss."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lqf.data import Images
from lqf.fitting import TrainingProblem
from lqf.linear.targets import error_rate
from lqf.settings import Settings
from lqf.solvers.solution import Solution
from lqf_paper.report.draw import COLOURS, plain
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Results, Summary, Table, bare_percent
from lqf_paper.runner.registry import defaults, work
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task
from lqf_paper.studies.decay_slope import CLOSE, FLAT, REDUCTION, STRIDE, Search, descend
from lqf_paper.studies.informativeness import VALIDATION, parted
from lqf_paper.studies.problem import LQF, lqf_problem

TITLE = "weight decay"
WHOLE = True
FACTORS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Weight decays that are solved for, relative to leave-one-out's choice, the λ0 from which the others go on."""
FAR = 100.0
"""Where the search begins: so many times λ0."""
TOL = 1e-2
"""Relative residual of all solves, as of a usual fit; what it really is goes on the page."""


@work("weight decay path", validation=VALIDATION)
@defaults(Settings, **LQF, tol=TOL)
def weight_decay_path(task: Task, *, factors: list[float], settings: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """Errors and passes along the weight decay, from zero and from λ0's solution."""
    problem, validation = _problem(task, settings, seed)
    tol = problem.context.settings.tol  # a relative residual
    first = problem.solve(tol=tol)
    along: list[dict[str, Any]] = []
    for factor in factors:
        here = problem.with_ridge(problem.ridge.scaled(factor))
        anew = first if factor == 1.0 else here.solve(tol=tol)
        ways = {"scratch": anew, "finetuned": first if factor == 1.0 else here.solve(problem.body(first), tol=tol)}
        outputs = {w: here.outputs(task.test, s.delta) for w, s in ways.items()}
        measured = {w: _measured(here, s, outputs[w], task, validation) for w, s in ways.items()}
        along.append(
            {"factor": factor, **measured, "difference": _difference(outputs["finetuned"], outputs["scratch"])}
        )
    problem.release()
    total = problem.data.total_weight
    return {
        "test_error": problem.error(task.test, first),
        "weight_decay": problem.ridge.head / total,
        "body_weight_decay": problem.ridge.body / total,
        "validation": len(validation),
        "along": along,
        "residual": max(t[w]["residual"] for t in along for w in ("scratch", "finetuned")),
    }


@work("weight decay search", validation=VALIDATION, stride=STRIDE, close=CLOSE, flat=FLAT, reduction=REDUCTION)
@defaults(Settings, **LQF, tol=TOL)
def weight_decay_search(task: Task, *, far: float, settings: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """The search by slopes of the validation loss, begun at ``far`` times leave-one-out's choice."""
    problem, validation = _problem(task, settings, seed)
    start, limits = problem.with_ridge(problem.ridge.scaled(far)), problem.context.settings
    search = Search(start, validation, limits.tol, limits.max_passes)
    tried = descend(search, low=1e-3 / far, high=10.0)
    problem.release()
    best = min(tried, key=lambda t: t.loss)
    return {
        "validation": len(validation),
        "search": [{**asdict(t), "factor": far * t.scale} for t in tried],
        "found": {"factor": far * best.scale, "loss": best.loss, "validation_error": best.error},
        "residual": max(t.residual for t in tried),
        "slope_residual": max(t.slope_residual for t in tried),
    }


def _problem(task: Task, settings: dict[str, Any], seed: int) -> tuple[TrainingProblem, Images]:
    workspace, (images, validation) = task.workspace, parted(task, seed)
    net = copy.deepcopy(workspace.network(leaky=True))
    given = {"seed": seed, "tol": TOL, **settings}
    return lqf_problem(
        net, images, workspace.preprocess, workspace.device, progress=workspace.progress, **given
    ), validation


def _difference(a: Tensor, b: Tensor) -> float:
    """‖f_a − f_b‖ / ‖f_b‖ of the outputs on the test images."""
    return float((a - b).norm() / b.norm())


def _measured(
    problem: TrainingProblem, solution: Solution, outputs: Tensor, task: Task, validation: Images
) -> dict[str, Any]:
    return {
        "test_error": error_rate(outputs, torch.tensor(task.test.samples.labels)),
        "validation_error": problem.error(validation, solution),
        "passes": solution.certificate.passes,
        "residual": solution.certificate.relative_residual,
    }


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """The path and the search of every data set."""
    quick = scale.name == "quick"
    factors, far = ([1.0, 10.0], 10.0) if quick else (list(FACTORS), FAR)
    settings = {"pooling": "avg", "max_passes": 15 if quick else 100}
    made = []
    for task in tasks:
        made.append(Cell("weight decay path", task.name, {"factors": factors, "settings": settings}))
        made.append(Cell("weight decay search", task.name, {"far": far, "settings": settings}))
    return made


def summarise(results: Results) -> Summary:
    """Errors along λ, passes, and what the search found."""
    found = {
        t.name: {kind: results.where(work=f"weight decay {kind}", data=t.name)[0].result for kind in ("path", "search")}
        for t in results.tasks
    }
    shown = [f"{t['factor']:g} λ0" for t in next(iter(found.values()))["path"]["along"]]
    rows = []
    for name, r in found.items():
        along = r["path"]["along"]
        for way, label in (("scratch", "from zero"), ("finetuned", "from λ0's solution")):
            passes = sum(t[way]["passes"] for t in along if t["factor"] != 1.0)
            rows.append((name, label, *(bare_percent(t[way]["test_error"]) for t in along), str(passes)))
    notes = (
        "λ0: leave-one-out's choice; both weight decays (head and body) times the factor. Passes: all solutions "
        "but λ0's own, which is where the second row begins.",
        f"Solved to a relative residual of {TOL:g}, with float16 products on a GPU; residuals are measured by exact "
        "passes.",
        *(f"{name}: {_sentence(r)}" for name, r in found.items()),
    )
    return Summary(
        found,
        Table(("data", "test error, %", *shown, "passes"), tuple(rows), keys=2),
        lambda figure: _draw(figure, found),
        notes,
        size=(9.6, 3.2 * len(found) + 0.6),
    )


def _sentence(r: dict[str, Any]) -> str:
    """The search's way and all residuals, as a sentence."""
    path, search = r["path"], r["search"]
    return (
        f"the search on {search['validation']} held-out images, begun at {search['search'][0]['factor']:g} λ0, ends at "
        f"{search['found']['factor']:.2g} λ0 after {len(search['search'])} solutions. Worst residuals: "
        f"{path['residual']:.1e} along the path, {search['residual']:.1e} in the search, "
        f"{search['slope_residual']:.1e} of its slopes; at one λ the test outputs of the two solutions differ by "
        f"{max(t['difference'] for t in path['along']):.1g} of their norm at most."
    )


def _draw(figure: Any, found: dict[str, dict[str, Any]]) -> None:
    """Left: errors along λ. Right: the validation loss that the search saw, with its slopes."""
    for (name, both), (left, right) in zip(found.items(), figure.subplots(len(found), 2, squeeze=False), strict=True):
        r = {**both["path"], **both["search"]}
        xs = [t["factor"] for t in r["along"]]
        for i, (of, label) in enumerate((("test_error", "test"), ("validation_error", "validation"))):
            ys = {w: [100 * t[w][of] for t in r["along"]] for w in ("scratch", "finetuned")}
            left.plot(xs, ys["scratch"], "-", color=COLOURS[i], label=f"{label}, from zero")
            left.plot(xs, ys["finetuned"], "o", color=COLOURS[i], mfc="none", label=f"{label}, from λ0's solution")
        left.set_ylabel("error, %")
        left.set_ylim(0, max(5.0, 1.15 * left.get_ylim()[1]))
        left.set_title(name, fontsize=10, loc="left")
        steps = r["search"]
        at = [s["factor"] for s in steps]
        right.plot(at, [s["loss"] for s in steps], "o", color=COLOURS[2])
        for k, s in enumerate(steps):
            ends = [s["factor"] * 2.0**e for e in (-0.5, 0.5)]
            change = s["slope"] * 0.5 * np.log(2.0)
            right.plot(ends, [s["loss"] - change, s["loss"] + change], "-", color=COLOURS[2], linewidth=2, alpha=0.5)
            right.annotate(str(k + 1), (s["factor"], s["loss"]), xytext=(4, 5), textcoords="offset points", fontsize=8)
        right.set_ylabel("validation loss")
        for axes in (left, right):
            axes.axvline(r["found"]["factor"], color=COLOURS[2], linestyle=":", label="found by the slope")
            axes.set_xscale("log")
            axes.set_xlabel("λ/λ0")
            plain(axes)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
