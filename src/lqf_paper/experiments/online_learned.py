"""Data that arrive in steps, each trained until it is learned: a training error below 0.5 % for five epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lqf_paper.studies.online  # noqa: F401 - registers the works
from lqf_paper.experiments.online import cost
from lqf_paper.report.draw import lines, panel_size, panels
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, Summary, Table, bare_percent
from lqf_paper.runner.grid import grid
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "data that arrive in steps, each trained until it is learned"
RULE: dict[str, Any] = {"stop_below": 0.005, "schedule": "constant"}
"""A schedule that came down to zero would end a run by itself."""
LONGEST = 4
"""Times the epochs of the scale, where a step is not learned before."""
WAYS = {
    ("online nlft", True): "NLFT, going on",
    ("online nlft", False): "NLFT from scratch",
    ("online lqf by steps", True): "LQF (paper), going on",
    ("online lqf by steps", False): "LQF (paper) from zero",
}


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Both methods, going on and from the beginning, at the rates of their grids."""
    rates = {"online nlft": grid("online", scale.name)[:1], "online lqf by steps": grid("lqf-few", scale.name)[-1:]}
    return [
        Cell(name, task.name, {"steps": scale.steps, "settings": _settings(scale, s), "go_on": go_on})
        for task in tasks
        for name, go_on in WAYS
        for s in rates[name]
    ]


def _settings(scale: Scale, settings: dict[str, Any]) -> dict[str, Any]:
    return {**settings, **RULE, "epochs": LONGEST * scale.epochs}


def summarise(results: Results) -> Summary:
    """Error after every step, and passes until the end."""
    found = {t.name: {way: _done(results, t.name, way) for way in WAYS} for t in results.tasks}
    shown = [f"{k + 1}/{results.scale.steps}" for k in range(results.scale.steps)]
    rows = [
        (name, WAYS[way], *(bare_percent(s["test_error"]) for s in d.result["steps"]), f"{cost(d.result['steps']):.0f}")
        for name, ways in found.items()
        for way, d in ways.items()
        if d is not None
    ]
    values = {name: {WAYS[w]: d and d.result for w, d in ways.items()} for name, ways in found.items()}
    return Summary(
        values,
        Table(("data", "test error, %, after", *shown, "passes"), tuple(rows), keys=2),
        lambda figure: _draw(figure, found, shown, [len(t.test) for t in results.tasks]),
        (
            "A step ends when the training error, on the random crops as they came, has been at most "
            f"{100 * RULE['stop_below']:g} % in five epochs in a row, and after "
            f"{LONGEST * results.scale.epochs} epochs in any case; the rate is constant. Passes: epochs over all "
            "images, each counted by the share of the images that it saw.",
        ),
        size=panel_size(len(found), 4.2, 3.8, 0.4),
    )


def _done(results: Results, data: str, way: tuple[str, bool]) -> Done | None:
    found = results.where(work=way[0], data=data, go_on=way[1])
    return found[0] if found else None


def _draw(
    figure: Any, found: dict[str, dict[tuple[str, bool], Done | None]], shown: Sequence[str], images: Sequence[int]
) -> None:
    every = panels(figure, len(found))
    for k, (axes, n, (name, ways)) in enumerate(zip(every, images, found.items(), strict=True)):
        series = {WAYS[w]: [s["test_error"] for s in d.result["steps"]] for w, d in ways.items() if d}
        lines(axes, shown, series, label="test error, %" if k == 0 else "", images=n)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("share of the training images")
        axes.set_ylim(bottom=0)
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
