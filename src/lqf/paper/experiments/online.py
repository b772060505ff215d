"""Data that arrive in steps: LQF and ordinary fine-tuning that go on from where they were, and the latter anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lqf.paper.arrival  # noqa: F401 - registers the works
from lqf.paper.cells import Cell
from lqf.paper.draw import lines
from lqf.paper.experiment import Done, Results, Summary, Table, best, percent
from lqf.paper.grid import grid
from lqf.paper.lab import Task
from lqf.paper.scale import Scale

TITLE = "data that arrive in steps"
WHOLE = True
LABELS = {
    "lqf": "LQF, going on",
    "random": "LQF, random head, going on",
    "incremental": "NLFT, going on",
    "scratch": "NLFT from scratch",
}
POINTS: dict[str, dict[str, Any]] = {"lqf": {"pooling": "avg"}, "random": {"pooling": "avg", "head": "random"}}
"""LQF around its own point, which is made again from all images at every step, and around one that stays."""


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """LQF once per point; NLFT in both ways over its grid."""
    made = []
    for task in tasks:
        made += [
            Cell("online lqf", task.name, {"steps": scale.steps, "settings": settings}) for settings in POINTS.values()
        ]
        for settings in grid("online", scale.name):
            how = {"epochs": scale.epochs, "stop_below": 0.005, **settings}
            common = {"steps": scale.steps, "settings": how, "least_steps": scale.least_steps}
            made += [Cell("online nlft", task.name, {**common, "go_on": go_on}) for go_on in (True, False)]
    return made


def summarise(results: Results) -> Summary:
    """Error after every step, and image passes until the end."""
    found = {t.name: _found(results, t.name) for t in results.tasks}
    rows = []
    for name, ways in found.items():
        for way, done in ways.items():
            if done is not None:
                steps = done.result["steps"]
                rows.append((name, LABELS[way], *(percent(s["test_error"]) for s in steps), f"{cost(steps):.0f}"))
    shown = [f"{k + 1}/{results.scale.steps}" for k in range(results.scale.steps)]
    values = {
        name: {
            way: done and {"settings": done.params["settings"], "steps": done.result["steps"]}
            for way, done in w.items()
        }
        for name, w in found.items()
    }
    cold = [
        f"{name}: {cost(d.result['steps']):.0f} of LQF going on against {cost(d.result['steps'], 'passes_cold'):.0f} "
        "from zero at every step"
        for name, w in found.items()
        if (d := w["lqf"])
    ]
    return Summary(
        values,
        Table(("data", "test error, %, after", *shown, "passes"), tuple(rows)),
        lambda figure: _draw(figure, found, shown),
        (
            "Passes: over all images, in all steps together (an epoch of NLFT; a product with H of LQF), each counted "
            "by the share of the images that it saw.",
            "NLFT ends a step early when its training error has been below 0.5 % in five epochs; the best of its grid "
            "by its error after the last step.",
            "Passes, " + "; ".join(cold) + ".",
        ),
        size=(4.2 * max(2, len(found)), 4.2),
    )


def cost(steps: Sequence[dict[str, Any]], of: str = "passes") -> float:
    """Σ passes · n / N over all steps."""
    return sum(s[of] * s["n"] for s in steps) / steps[-1]["n"]


def _found(results: Results, name: str) -> dict[str, Done | None]:
    ours: dict[str, Done | None] = {
        way: best(results.where(work="online lqf", data=name, settings=settings)) for way, settings in POINTS.items()
    }
    return ours | {
        "incremental": best(results.where(work="online nlft", data=name, go_on=True)),
        "scratch": best(results.where(work="online nlft", data=name, go_on=False)),
    }


def _draw(figure: Any, found: dict[str, dict[str, Done | None]], shown: Sequence[str]) -> None:
    for k, (name, ways) in enumerate(found.items()):
        axes = figure.add_subplot(1, max(2, len(found)), k + 1)
        series = {LABELS[w]: [s["test_error"] for s in d.result["steps"]] for w, d in ways.items() if d}
        lines(axes, shown, series, label="test error, %" if k == 0 else "")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("share of the training images")
        axes.set_ylim(bottom=0)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
