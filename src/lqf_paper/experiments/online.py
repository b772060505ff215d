"""Data that arrive in steps: LQF and ordinary fine-tuning that go on from where they were, and the latter anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import lqf_paper.studies.online  # noqa: F401 - registers the works
from lqf_paper.methods.catalogue import params
from lqf_paper.report.draw import lines, panel_size, panels
from lqf_paper.report.verdicts import HOW, MORE, Judged, Range, judge_errors, near, verdict_table
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, Summary, Table, bare_percent, best
from lqf_paper.runner.grid import grid
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "data that arrive in steps"
WHOLE = True
NEAR = 0.02
"""Errors so close to each other are called close; the paper gives no bound."""
LABELS = {
    "lqf": "LQF, going on",
    "random": "LQF, random head, going on",
    "incremental": "NLFT, going on",
    "scratch": "NLFT from scratch",
}
POINTS: dict[str, dict[str, Any]] = {
    "lqf": {"pooling": "avg", "tol": 1e-2, "max_passes": 100},
    "random": {"pooling": "avg", "head": "random", "tol": 1e-2, "max_passes": 100},
}
"""LQF around its own point, which is made again from all images at every step, and around one that stays."""


@dataclass(frozen=True)
class Way:
    """One method's way through the steps: its settings, and n, test error and passes of every step."""

    settings: dict[str, Any]
    steps: list[dict[str, Any]]


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """LQF once per point; NLFT in both ways over its grid.

    From scratch, steps know nothing of each other, and the last one is the cell that `table1` has: NLFT of all images.
    """
    made = []
    for task in tasks:
        made += [
            Cell("online lqf", task.name, {"steps": scale.steps, "settings": settings}) for settings in POINTS.values()
        ]
        for settings in grid("online", scale.name):
            common = _common(scale, settings)
            made.append(Cell("online nlft", task.name, {**common, "go_on": True}))
            if scale.steps > 1:
                made.append(Cell("online nlft", task.name, {**common, "go_on": False, "first": scale.steps - 1}))
            made.append(Cell("fit", task.name, params("nlft", scale, len(task.train), settings)))
    return made


def _common(scale: Scale, settings: dict[str, Any]) -> dict[str, Any]:
    how = {"epochs": scale.epochs, **settings}
    return {"steps": scale.steps, "settings": how, "least_steps": scale.least_steps}


def summarise(results: Results) -> Summary:
    """Error after every step, and image passes until the end."""
    found = {t.name: _found(results, t) for t in results.tasks}
    rows = []
    for name, ways in found.items():
        for way, of in ways.items():
            if of is not None:
                rows.append(
                    (name, LABELS[way], *(bare_percent(s["test_error"]) for s in of.steps), f"{cost(of.steps):.0f}")
                )
    shown = [f"{k + 1}/{results.scale.steps}" for k in range(results.scale.steps)]
    values = {name: {way: of and asdict(of) for way, of in ways.items()} for name, ways in found.items()}
    judged = judge_last({t.name: len(t.test) for t in results.tasks}, found)
    return Summary(
        {**values, "statements": [j.values() for j in judged]},
        Table(("data", "test error, %, after", *shown, "passes"), tuple(rows), keys=2),
        lambda figure: _draw(figure, found, shown, [len(t.test) for t in results.tasks]),
        (
            "Passes: over all images, in all steps together (an epoch of NLFT; a product with H of LQF), each counted "
            "by the share of the images that it saw.",
            f"NLFT: the best of {len(grid('online', results.scale.name))} settings by its error after the last step. "
            "It is trained to the end of its schedule in every step, also where it goes on from its last network: "
            "ended earlier, it would stand at a learning rate that has not come down yet.",
            f"LQF: solved to a relative residual of {POINTS['lqf']['tol']:g}; residuals are measured by exact passes.",
            HOW,
            *(f"{name}: {_sentence(ways)}." for name, ways in found.items()),
        ),
        size=panel_size(len(found), 4.2, 3.8, 0.4),
        tables=(("Statements, of the errors after the last step:", verdict_table(judged, list(found))),),
    )


def judge_last(images: Mapping[str, int], found: Mapping[str, Mapping[str, Way | None]]) -> list[Judged]:
    """What the paper says of the ways, by their last steps."""

    def judged(text: str, way: str, to: str, claimed: Range) -> Judged:
        errors = {name: (_last(ways[way]), _last(ways[to]), images[name]) for name, ways in found.items()}
        return judge_errors(text, claimed, errors)

    return [
        judged("NLFT going on is worse than from scratch", "incremental", "scratch", MORE),
        judged(f"LQF going on within {100 * NEAR:.0f} points of NLFT from scratch", "lqf", "scratch", near(NEAR)),
    ]


def _last(of: Way | None) -> float | None:
    return None if of is None else of.steps[-1]["test_error"]


def _sentence(ways: dict[str, Way | None]) -> str:
    """Passes, residuals and differences of LQF's solutions."""
    parts = []
    for way in POINTS:
        if of := ways[way]:
            residual, apart = (max(s[k] for s in of.steps) for k in ("residual", "difference"))
            warm, cold = cost(of.steps), cost(of.steps, "passes_cold")
            parts.append(
                f"{LABELS[way]} takes {warm:.0f} passes against {cold:.0f} from zero at every step "
                f"(worst residual {residual:.1e}; test outputs differ by {apart:.1g} of their norm at most)"
            )
    return "; ".join(parts)


def cost(steps: Sequence[dict[str, Any]], of: str = "passes") -> float:
    """Σ passes · n / N over all steps."""
    return sum(s[of] * s["n"] for s in steps) / steps[-1]["n"]


def _found(results: Results, task: Task) -> dict[str, Way | None]:
    name = task.name
    lqf = {way: best(results.where(work="online lqf", data=name, settings=POINTS[way])) for way in POINTS}
    on = best(results.where(work="online nlft", data=name, go_on=True))
    return {way: _way(d) for way, d in {**lqf, "incremental": on}.items()} | {"scratch": _from_scratch(results, task)}


def _way(done: Done | None) -> Way | None:
    return None if done is None else Way(done.params["settings"], done.result["steps"])


def _from_scratch(results: Results, task: Task) -> Way | None:
    """The best setting after the last step; its first steps from their cell, the last one from that of all images."""
    scale, made = results.scale, []
    for settings in grid("online", scale.name):
        whole = params("nlft", scale, len(task.train), settings)
        last = results.where(work="fit", data=task.name, **whole)[0].result
        common = _common(scale, settings)
        parts = results.where(work="online nlft", data=task.name, go_on=False, **common)
        steps = [s for d in parts for s in d.result["steps"]]
        passes = whole["settings"]["epochs"]
        steps.append({"n": len(task.train), "test_error": last["test_error"], "passes": passes})
        made.append(Way(common["settings"], steps))
    known = [w for w in made if w.steps[-1]["test_error"] is not None]
    return min(known, key=lambda w: w.steps[-1]["test_error"]) if known else None


def _draw(figure: Any, found: dict[str, dict[str, Way | None]], shown: Sequence[str], images: Sequence[int]) -> None:
    every = panels(figure, len(found))
    for k, (axes, n, (name, ways)) in enumerate(zip(every, images, found.items(), strict=True)):
        series = {LABELS[w]: [s["test_error"] for s in of.steps] for w, of in ways.items() if of}
        lines(axes, shown, series, label="test error, %" if k == 0 else "", images=n)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("share of the training images")
        axes.set_ylim(bottom=0)
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
