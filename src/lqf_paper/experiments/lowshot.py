"""Few images per class: the error of LQF relative to that of ordinary fine-tuning on the same images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lqf_paper.experiments.nlft_mse import FEW, LOSSES, nlft_cell, searched_settings, shots
from lqf_paper.methods.catalogue import METHODS, params
from lqf_paper.report.draw import COLOURS, plain
from lqf_paper.report.interval import Interval, interval
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, Summary, Table, bare_percent, best
from lqf_paper.runner.grid import grid
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "few images per class"
OURS = ("lqf-ours", "lqf-ours-avg", "lqf-fc")
METHOD_NAMES = (*LOSSES, *OURS)
DENSE_ROWS = 500
"""Up to so many rows N·C of the Jacobian LQF is solved densely, in seconds on a GPU; beyond that by PCG."""

_FIXED: dict[str, Any] = {"head": "random", "weight_decay": 10.0, "body_weight_decay": 100.0}
ONE_SHOT: dict[str, dict[str, Any]] = {
    "lqf-ours": {**_FIXED, "pooling": "bilinear", "views": "flip"},
    "lqf-ours-avg": _FIXED,
    "lqf-fc": {"weight_decay": 10.0},
}
"""With one image per class nothing can be left out: every choice that leave-one-out makes is made here. A decade of
weight decay up or down changes the error by a point (EfficientNet-Lite0 on CUB)."""

Errors = dict[str, list[float | None]]
"""Method -> test error of every draw; None: it diverged."""


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """NLFT over its grids (cells of `nlft-mse`, and of `table1`), LQF and its head once, for every draw."""
    return [
        cell
        for task in tasks
        for k in shots(task, scale)
        for seed in range(scale.draws if k is not None else 1)
        for cell in (*_nlft(task, scale, k, seed), *(_exact(m, task, scale, k, seed) for m in OURS))
    ]


def _nlft(task: Task, scale: Scale, k: int | None, seed: int) -> list[Cell]:
    made = []
    for method in LOSSES:
        settings = searched_settings(method, k, scale)
        if k is None:
            settings += [s for s in grid(f"{method}-resized", scale.name) if s not in settings]
        made += [nlft_cell(method, task, scale, s, k, seed) for s in settings]
    return made


def _exact(method: str, task: Task, scale: Scale, k: int | None, seed: int) -> Cell:
    """One fit. With few images the solver is fixed, so that it does not change from draw to draw."""
    n = len(task.shots(k, seed).train)
    solver = "dense" if n * len(task.classes) <= DENSE_ROWS else "pcg"
    settings: dict[str, Any] = (
        {"weight_decay": "auto"} if method == "lqf-fc" else {} if k is None else {"solver": solver}
    )
    if k == 1:
        settings |= ONE_SHOT[method]
    part = {} if k is None else {"shots": k}
    return Cell("fit", task.name, params(method, scale, n, settings, seed=seed, **part))


def summarise(results: Results) -> Summary:
    """Mean errors, and their ratios to NLFT's with 95 % intervals over the draws."""
    found = {t.name: {k: _errors(results, t.name, k) for k in shots(t, results.scale)} for t in results.tasks}
    gaps = {
        name: {m: {k: interval(_relative(e, m)) for k, e in by_shots.items()} for m in METHOD_NAMES[1:]}
        for name, by_shots in found.items()
    }
    rows = [
        (
            name,
            _name(k),
            *(bare_percent(_mean(errors[m])) for m in METHOD_NAMES),
            *(gaps[name][m][k].percent() for m in METHOD_NAMES[1:]),
        )
        for name, by_shots in found.items()
        for k, errors in by_shots.items()
    ]
    labels = [METHODS[m].label for m in METHOD_NAMES]
    columns = (
        "data",
        "images per class",
        *(f"{x}, %" for x in labels),
        *(f"{x} to NLFT, %" for x in labels[1:]),
    )
    values = {
        name: {
            _name(k): {"errors": e, "relative": {m: gaps[name][m][k].to_dict() for m in METHOD_NAMES[1:]}}
            for k, e in by_shots.items()
        }
        for name, by_shots in found.items()
    }
    return Summary(
        values,
        Table(columns, tuple(rows), keys=2),
        lambda figure: _draw(figure, found, gaps),
        (
            "NLFT, with either loss: the best of its grid by test error, for every draw, on the central crop; up to "
            f"{FEW} images per class with batch normalisation in train and in eval mode.",
            "LQF (ours) is one fit with its defaults, which choose pooling and views by leave-one-out; with average "
            "pooling and one view it sees what NLFT sees.",
            "With one image per class nothing can be left out: LQF has fixed weight decays (head 10, body 100), "
            "keeps a random head, and LQF (ours) pools bilinearly and mirrors.",
            "To NLFT: (error − NLFT's error with the cross entropy)/that error, the mean over the draws and "
            + ("both draws." if results.scale.draws == 2 else "its 95 % interval (by t)."),
        ),
        size=(10.0, 4.2),
    )


def _errors(results: Results, data: str, k: int | None) -> Errors:
    out: Errors = {}
    seeds = _seeds(results.where(work="fit", data=data, shots=k))  # of all methods: a missing cell leaves a gap
    for method in METHOD_NAMES:
        tried = results.where(work="fit", data=data, method=method, shots=k)
        winners = [best([d for d in tried if d.params["seed"] == seed]) for seed in seeds]
        out[method] = [w.result["test_error"] if w else None for w in winners]
    return out


def _seeds(tried: Sequence[Done]) -> list[int]:
    return sorted({d.params["seed"] for d in tried})


def _relative(errors: Errors, method: str) -> list[float]:
    pairs = zip(errors[method], errors["nlft"], strict=True)
    return [(e - r) / r for e, r in pairs if e is not None and r]


def _mean(errors: Sequence[float | None]) -> float | None:
    known = [e for e in errors if e is not None]
    return sum(known) / len(known) if known else None


def _name(k: int | None) -> str:
    return "all" if k is None else str(k)


def _draw(
    figure: Any, found: dict[str, dict[int | None, Errors]], gaps: dict[str, dict[str, dict[int | None, Interval]]]
) -> None:
    """Left: LQF relative to NLFT, with intervals. Right: the errors themselves."""
    left, right = figure.subplots(1, 2)
    every = {k for by_shots in found.values() for k in by_shots}
    names = [_name(k) for k in sorted(every, key=lambda k: math.inf if k is None else k)]
    for i, (data, by_shots) in enumerate(found.items()):
        colour, at = COLOURS[i % len(COLOURS)], [names.index(_name(k)) for k in by_shots]
        apart = 0.06 * (i - (len(found) - 1) / 2)
        for method, style in (("lqf-ours", "o-"), ("lqf-ours-avg", "^:")):
            gaps_here = zip(at, gaps[data][method].values(), strict=True)
            known = [(x + apart, g.mean, g.shown) for x, g in gaps_here if g.mean is not None]
            xs, ys, spread = ([row[j] * (1 if j == 0 else 100) for row in known] for j in range(3))
            left.errorbar(xs, ys, spread, fmt=style, color=colour, capsize=3, markersize=4)
        for method, style in (("lqf-ours", "o-"), ("lqf-ours-avg", "^:"), ("nlft", "s--"), ("nlft-mse", "x-.")):
            errors = [_mean(e[method]) for e in by_shots.values()]
            shown = [float("nan") if e is None else 100 * e for e in errors]
            right.plot(at, shown, style, color=colour, markersize=4, label=f"{data}, {METHODS[method].label}")
    left.axhline(0, color="black", linestyle="--", linewidth=1)
    left.set_ylabel("error relative to NLFT, %")
    right.set_ylabel("test error, %")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel("images per class")
        plain(axes)
    figure.legend(
        *right.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=max(2, len(found)),
        frameon=False,
        fontsize=8,
    )
