"""Whether mini-batch SGD arrives where the exact solver says, and as fast as the paper's formula has it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import lqf_paper.studies.convergence  # noqa: F401 - registers the work
from lqf_paper.report.draw import COLOURS, plain
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, Summary, Table, bare_percent
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "SGD and the exact solution"
EPOCHS = {"short": (25, 50, 100, 200, 400), "paper": (25, 50, 100, 200, 400), "quick": (2, 8)}
IMAGES = {"short": 320, "paper": None, "quick": 12}
"""At most so many training images, evenly spread over the classes; None: all."""
WAYS: dict[str, dict[str, Any]] = {
    "K-FAC, ρ 0.1": {"kfac": True, "damping": 0.1},
    "no K-FAC": {"kfac": False},
    "K-FAC, ρ 1, by the trace": {"kfac": True, "damping": 1.0, "damping_kind": "trace"},
    "K-FAC, ρ 0.01": {"kfac": True, "damping": 0.01},
    "K-FAC, ρ 1": {"kfac": True, "damping": 1.0},
}
COMMON: dict[str, Any] = {"learning_rate": "stable", "weight_decay": 1e-4}


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every way for every number of epochs, way by way: their K-FAC, spectrum and optimum are shared."""
    return [
        Cell("convergence", task.name, {"images": IMAGES[scale.name], "settings": {**COMMON, **way, "epochs": n}})
        for task in tasks
        for way in WAYS.values()
        for n in EPOCHS[scale.name]
    ]


def summarise(results: Results) -> Summary:
    """Distance and error over the epochs, beside the formula and the optimum."""
    found = {t.name: {way: _runs(results, t.name, way) for way in WAYS} for t in results.tasks}
    rows = [
        row for name, ways in found.items() for way, runs in ways.items() for row in _rows(name, way, runs, results)
    ]
    values = {
        name: {way: {str(n): d.result for n, d in runs.items()} for way, runs in ways.items()}
        for name, ways in found.items()
    }
    epochs = EPOCHS[results.scale.name]
    images = IMAGES[results.scale.name]
    return Summary(
        values,
        Table(("data", "method", "after epochs", *map(str, epochs), "exact"), tuple(rows), keys=3),
        lambda figure: _draw(figure, found),
        (
            f"{'All' if images is None else f'Up to {images}'} training images, the central crop alone, λ = 1e-4; η is "
            "the largest whose steps do not overshoot the first batches, as measured on them. Cosine schedule.",
            "Distance: ‖w − w*‖ in the norm of H, the distance of training outputs and penalised weights, over that of "
            "the beginning; w* by conjugate gradients on the same problem. Formula: the same of the expected w, "
            "(I − ηP⁻¹H)ᵗ with momentum and schedule, from 48 Lanczos steps.",
            *_shares(found),
        ),
        size=(4.4 * len(found) + 0.8, 6.4),
    )


def _runs(results: Results, name: str, way: str) -> dict[int, Done]:
    """Epochs -> cell."""
    done = [d for d in results.where(work="convergence", data=name) if _is(d.params["settings"], WAYS[way])]
    return {d.params["settings"]["epochs"]: d for d in done}


def _is(settings: dict[str, Any], way: dict[str, Any]) -> bool:
    return {k: v for k, v in settings.items() if k not in COMMON and k != "epochs"} == way


def _rows(name: str, way: str, runs: dict[int, Done], results: Results) -> list[tuple[str, ...]]:
    epochs = EPOCHS[results.scale.name]
    if not runs:
        return []
    exact = next(iter(runs.values())).result["test_error_of_optimum"]

    def row(label: str, key: str, last: str) -> tuple[str, ...]:
        shown = [_shown(key, runs[n].result[key]) if n in runs else "–" for n in epochs]
        return (name, way, label, *shown, last)

    return [
        row("distance", "distance", "0"),
        row("formula", "expected", "0"),
        row("test error, %", "test_error", bare_percent(exact)),
    ]


def _shown(key: str, value: float | None) -> str:
    if value is None:
        return "–"
    return bare_percent(value) if key == "test_error" else f"{value:.2g}"


def _shares(found: dict[str, dict[str, dict[int, Done]]]) -> list[str]:
    """What every way preconditions, in a sentence per data set."""
    out = []
    for name, ways in found.items():
        parts = []
        for way, runs in ways.items():
            result = next(iter(runs.values())).result if runs else {}
            if "preconditioned" in result:
                by = result["preconditioned"]
                shares = f"{by['by_trace']:.0%} of the trace, {by['by_count']:.2%} of the directions"
                parts.append(f"{way}: {shares} (η = {result['learning_rate']:.2g})")
        if parts:
            out.append(f"{name}: eigenvalues above the damping: {'; '.join(parts)}.")
    return out


def _draw(figure: Any, found: dict[str, dict[str, dict[int, Done]]]) -> None:
    """Above: distances, the formula dashed. Below: test errors."""
    panels = figure.subplots(2, len(found), squeeze=False)
    for k, (name, ways) in enumerate(found.items()):
        above, below = panels[0][k], panels[1][k]
        for colour, (way, runs) in zip(COLOURS, ways.items(), strict=False):
            if not runs:
                continue
            xs = sorted(runs)
            above.plot(
                xs, [_or_nan(runs[n].result["distance"]) for n in xs], "o-", color=colour, label=way, markersize=4
            )
            above.plot(xs, [_or_nan(runs[n].result["expected"]) for n in xs], "--", color=colour, linewidth=1)
            below.plot(xs, [100 * _or_nan(runs[n].result["test_error"]) for n in xs], "o-", color=colour, markersize=4)
        exact = [d.result["test_error_of_optimum"] for runs in ways.values() for d in runs.values()]
        if exact:
            below.axhline(100 * exact[0], color="black", linewidth=1, linestyle=":")
        above.set_title(name, fontsize=10)
        above.set_yscale("log")
        for axes in (above, below):
            axes.set_xscale("log")
            ticks = sorted({n for runs in ways.values() for n in runs})
            axes.set_xticks(ticks, list(map(str, ticks)))
            axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
            plain(axes)
        below.set_xlabel("epochs")
        below.set_ylim(0, 1.08 * below.get_ylim()[1])
    panels[0][0].set_ylabel("distance to the exact solution\n(dashed: the formula)")
    panels[1][0].set_ylabel("test error, %\n(dotted: the exact solution)")
    figure.legend(
        *panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(found) + 1, frameon=False
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
