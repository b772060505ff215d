"""Few images per class: the error of LQF relative to that of ordinary fine-tuning on the same images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lqf.evaluation.intervals import wilson
from lqf_paper.experiments.nlft_mse import FEW, LOSSES, nlft_cell, searched_settings, shots
from lqf_paper.methods.catalogue import METHODS, params
from lqf_paper.report.draw import COLOURS, panel_size, panels, plain
from lqf_paper.report.interval import interval
from lqf_paper.report.paired import Gap, gap
from lqf_paper.report.verdicts import HOW, LESS, NOT_TOLD, marked, verdict
from lqf_paper.report.winners import Winner
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, Summary, Table, bare_percent, best
from lqf_paper.runner.grid import grid
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "few images per class"
OURS = ("lqf-ours", "lqf-ours-avg", "lqf-fc")
METHOD_NAMES = (*LOSSES, "lqf", *OURS)
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

LIKE = tuple(m for m in ("lqf", "lqf-ours-avg") if m in METHOD_NAMES)
"""LQF as NLFT sees the images: average pooling, one view."""
COMPARED = (*LIKE, "lqf-ours")
STYLES = {m: "o-" if m in OURS else "s--" for m in METHOD_NAMES}

Won = dict[str, list[Done | None]]
"""Method -> the winner of every draw; None: all its runs diverged."""
Compared = dict[str, dict[int | None, dict[str, Gap | None]]]
"""Data set -> images per class -> method -> its error minus NLFT's."""


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """NLFT and LQF (paper) over their grids (cells of `nlft-mse`, and of `table1`), LQF (ours) once, for every draw."""
    return [
        cell
        for task in tasks
        for k in shots(task, scale)
        for seed in range(scale.draws if k is not None else 1)
        for cell in (
            *_nlft(task, scale, k, seed),
            *_papers(task, scale, k, seed),
            *(_exact(m, task, scale, k, seed) for m in OURS),
        )
    ]


def _papers(task: Task, scale: Scale, k: int | None, seed: int) -> list[Cell]:
    """LQF (paper) over its rates; on all images its cells are those of `table1`."""
    searched = grid("lqf", scale.name) if k is None else grid("lqf-few", scale.name)
    return [nlft_cell("lqf", task, scale, s, k, seed) for s in searched]


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
    """Mean errors, their ratios to NLFT's over the draws, and differences with intervals."""
    found = {t.name: {k: _by_draw(results, t.name, k) for k in shots(t, results.scale)} for t in results.tasks}
    gaps = {
        name: {m: {k: interval(_relative(e, m)) for k, e in by_shots.items()} for m in METHOD_NAMES[1:]}
        for name, by_shots in found.items()
    }
    rows = [
        (
            name,
            _name(k),
            *(bare_percent(_mean(_errors(won[m]))) for m in METHOD_NAMES),
            *(gaps[name][m][k].percent() for m in METHOD_NAMES[1:]),
        )
        for name, by_shots in found.items()
        for k, won in by_shots.items()
    ]
    labels = [METHODS[m].label for m in METHOD_NAMES]
    columns = (
        "data",
        "images per class",
        *(f"{x}, %" for x in labels),
        *(f"{x} to NLFT, %" for x in labels[1:]),
    )
    compared = {name: {k: _gaps(results, name, won) for k, won in of.items()} for name, of in found.items()}
    values = {
        name: {
            _name(k): {
                "errors": {m: _errors(of) for m, of in won.items()},
                "relative": {m: gaps[name][m][k].to_dict() for m in METHOD_NAMES[1:]},
                "minus_nlft": {m: g and g.to_dict() for m, g in compared[name][k].items()},
            }
            for k, won in by_shots.items()
        }
        for name, by_shots in found.items()
    }
    return Summary(
        values,
        Table(columns, tuple(rows), keys=2),
        lambda figure: _draw(figure, found, [len(t.test) for t in results.tasks]),
        (
            "NLFT, with either loss: the best of its grid by test error, for every draw, on the central crop; up to "
            f"{FEW} images per class with batch normalisation in train and in eval mode.",
            "LQF (ours) is one fit with its defaults, which choose pooling and views by leave-one-out; with average "
            "pooling and one view it sees what NLFT sees.",
            "With one image per class nothing can be left out: LQF has fixed weight decays (head 10, body 100), "
            "keeps a random head, and LQF (ours) pools bilinearly and mirrors.",
            "To NLFT: (error − NLFT's error with the cross entropy)/that error, the mean over the draws and "
            + ("both draws." if results.scale.draws == 2 else "its 95 % interval (by t)."),
            "The paper: LQF is ahead of NLFT where there are few images. Like for like, with average pooling and one "
            f"view: {_counted(compared)}.",
            HOW,
            "Where it is unpaired, an interval knows of the choice of test images and not of that of training images.",
            NOT_TOLD,
        ),
        size=panel_size(len(found), 3.4, 3.6, 0.5),
        tables=(("Error minus that of NLFT (the paper: below it):", _gap_table(compared)),),
    )


def _by_draw(results: Results, data: str, k: int | None) -> Won:
    seeds = _seeds(results.where(work="fit", data=data, shots=k))  # of all methods: a missing cell leaves a gap
    tried = {m: results.where(work="fit", data=data, method=m, shots=k) for m in METHOD_NAMES}
    return {m: [best([d for d in of if d.params["seed"] == seed]) for seed in seeds] for m, of in tried.items()}


def _seeds(tried: Sequence[Done]) -> list[int]:
    return sorted({d.params["seed"] for d in tried})


def _errors(won: Sequence[Done | None]) -> list[float | None]:
    return [w.result["test_error"] if w else None for w in won]


def _gaps(results: Results, data: str, won: Won) -> dict[str, Gap | None]:
    """Every LQF against NLFT, over the draws in which neither diverged."""
    labels = next(t for t in results.tasks if t.name == data).test.samples.labels
    out: dict[str, Gap | None] = {}
    for method in COMPARED:
        both = [(a, b) for a, b in zip(won[method], won["nlft"], strict=True) if a and b]
        ours, theirs = (tuple(pair[i] for pair in both) for i in (0, 1))
        sides = [Winner(side[0], side, 0, labels) if side else None for side in (ours, theirs)]
        out[method] = gap(*sides, together=True)
    return out


def _gap_table(compared: Compared) -> Table:
    labels = [METHODS[m].label + ("" if m in LIKE else ", not like for like") for m in COMPARED]
    rows = [
        (name, _name(k), *(marked(g, LESS) for g in of.values()))
        for name, by in compared.items()
        for k, of in by.items()
    ]
    return Table(("data", "images per class", *labels), tuple(rows), keys=2)


def _counted(compared: Compared) -> str:
    """How often each method is ahead, behind, or neither, with fewer than all images."""
    parts = []
    for method in LIKE:
        said = [
            verdict(g.low, g.high, LESS)
            for by in compared.values()
            for k, of in by.items()
            if k is not None and (g := of[method]) is not None
        ]
        counts = {v: said.count(v) for v in ("confirmed", "contradicted", "not confirmed")}
        listed = ", ".join(f"{v} in {n}" for v, n in counts.items())
        parts.append(f"{METHODS[method].label}: {listed} of {len(said)}")
    return "; ".join(parts)


def _relative(won: Won, method: str) -> list[float]:
    pairs = zip(_errors(won[method]), _errors(won["nlft"]), strict=True)
    return [(e - r) / r for e, r in pairs if e is not None and r]


def _mean(errors: Sequence[float | None]) -> float | None:
    known = [e for e in errors if e is not None]
    return sum(known) / len(known) if known else None


def _name(k: int | None) -> str:
    return "all" if k is None else str(k)


def _draw(figure: Any, found: dict[str, dict[int | None, Won]], images: Sequence[int]) -> None:
    """A panel per data set: errors over the number of images, with 95 % intervals by the number of test images."""
    every = panels(figure, len(found))
    for axes, n, (data, by_shots) in zip(every, images, found.items(), strict=True):
        for i, (method, style) in enumerate(STYLES.items()):
            means = [(x, _mean(_errors(won[method]))) for x, won in enumerate(by_shots.values())]
            apart = 0.07 * (i - (len(STYLES) - 1) / 2)
            known = [(x + apart, e, *wilson(e, n)) for x, e in means if e is not None]
            if known:
                xs, ys, low, high = (list(row) for row in zip(*known, strict=True))
                ends = [[100 * (y - e) for y, e in zip(ys, low, strict=True)]]
                ends.append([100 * (e - y) for y, e in zip(ys, high, strict=True)])
                axes.errorbar(
                    xs, [100 * y for y in ys], ends, fmt=style, color=COLOURS[i], markersize=4, elinewidth=1,
                    label=METHODS[method].label,
                )  # fmt: skip
        axes.set_xticks(range(len(by_shots)), [_name(k) for k in by_shots])
        axes.set_xlabel("images per class")
        axes.set_ylim(bottom=0)
        axes.set_title(data, fontsize=10)
        plain(axes)
    every[0].set_ylabel("test error, %")
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=8)
