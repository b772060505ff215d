"""Ordinary fine-tuning with the cross entropy and with the squared error, over the number of images per class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lqf_paper.methods.catalogue import params
from lqf_paper.report.draw import lines, panel_size, panels
from lqf_paper.report.verdicts import HOW, LESS, judge_errors, verdict_table
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Results, Summary, Table, bare_percent, best
from lqf_paper.runner.grid import grid
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "ordinary fine-tuning with the squared error"
LOSSES = {"nlft": "cross entropy", "nlft-mse": "squared error"}
"""Method -> its loss."""
FEW = 5
"""Up to so many images per class batch normalisation is tried with the network's own statistics too."""


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Both losses over their grids, for every number of shots that the data set has."""
    return [
        nlft_cell(method, task, scale, settings, k, seed)
        for task in tasks
        for k in shots(task, scale)
        for seed in range(draws(k, scale))
        for method in LOSSES
        for settings in searched_settings(method, k, scale)
    ]


def nlft_cell(method: str, task: Task, scale: Scale, settings: dict[str, Any], k: int | None, seed: int) -> Cell:
    """Fine-tuning on k images per class; on all of them it is a cell of `table1` where the settings are."""
    part = {} if k is None else {"shots": k}
    n = len(task.shots(k, seed).train)
    return Cell("fit", task.name, params(method, scale, n, settings, seed=seed, **part))


def searched_settings(method: str, k: int | None, scale: Scale) -> list[dict[str, Any]]:
    """The settings with one loss; with few images batch normalisation is tried in eval mode too.

    With the cross entropy and all images they are those of NLFT in `table1`, and in the paper's grid more.
    """
    name = "nlft-few" if method == "nlft" else method
    own = grid(name, scale.name)
    if k is None:
        known = grid(method, scale.name)
        return known + [s for s in own if s not in known]
    return own + (grid(f"{name}-kept", scale.name) if k <= FEW else [])


def draws(k: int | None, scale: Scale) -> int:
    """How many choices of k images per class: several in the paper's grid, elsewhere one."""
    return scale.draws if k is not None and scale.name == "paper" else 1


def shots(task: Task, scale: Scale) -> list[int | None]:
    """Numbers of images per class that leave some out, and all."""
    most = int(task.train.samples.counts.max())
    return [k for k in scale.shots if k is None or k < most]


def summarise(results: Results) -> Summary:
    """The mean over draws of the best error of each, per data set and number of shots."""
    values: dict[str, dict[str, dict[str, float | None]]] = {}
    for task in results.tasks:
        wanted = shots(task, results.scale)
        values[task.name] = {
            label: {_name(k): _mean_best(results, task.name, method, k) for k in wanted}
            for method, label in LOSSES.items()
        }
    there = {k for t in results.tasks for k in shots(t, results.scale)}
    columns = [_name(k) for k in results.scale.shots if k in there]
    rows = [
        (name, loss, *(bare_percent(by_shots.get(c)) for c in columns))
        for name, by_loss in values.items()
        for loss, by_shots in by_loss.items()
    ]

    def draw(figure: Any) -> None:
        axes = panels(figure, len(values))
        for ax, task, (name, by_loss) in zip(axes, results.tasks, values.items(), strict=True):
            xs = list(next(iter(by_loss.values())))
            series = {loss: list(v.values()) for loss, v in by_loss.items()}
            lines(ax, xs, series, label="test error, %" if ax is axes[0] else "", images=len(task.test))
            ax.set_title(name, fontsize=9)
            ax.set_xlabel("images per class")
        axes[0].legend(fontsize=8)

    many = draws(1, results.scale)
    notes = (
        "Columns are training images per class, chosen " + (f"{many} times" if many > 1 else "once") + "; "
        "the best of the grid for each choice" + (", then the mean." if many > 1 else "."),
        f"Up to {FEW} images per class batch normalisation was also tried in eval mode, with either loss.",
    )
    table = Table(("data", "loss", *columns), tuple(rows), keys=2)
    judged = [
        judge_errors(f"squared error < cross entropy, images per class: {k}", LESS, _at(values, k, results))
        for k in columns
    ]
    return Summary(
        {"errors": values, "statements": [j.values() for j in judged]},
        table,
        draw,
        (*notes, HOW),
        panel_size(len(values), 3.2, 3.4),
        tables=(("Statements; the paper has the first ones, for few images:", verdict_table(judged, list(values))),),
    )


def _at(
    values: dict[str, dict[str, dict[str, float | None]]], k: str, results: Results
) -> dict[str, tuple[float | None, float | None, int]]:
    """Data set -> error with the squared error, with the cross entropy, and the number of test images."""
    images = {t.name: len(t.test) for t in results.tasks}
    mse, cross = LOSSES["nlft-mse"], LOSSES["nlft"]
    return {name: (of[mse].get(k), of[cross].get(k), images[name]) for name, of in values.items()}


def _name(k: int | None) -> str:
    return "all" if k is None else str(k)


def _mean_best(results: Results, data: str, method: str, k: int | None) -> float | None:
    """None where a draw has no run that did not diverge."""
    errors = []
    for seed in range(draws(k, results.scale)):
        found = best(results.where(work="fit", data=data, method=method, shots=k, seed=seed))
        if found is None:
            return None
        errors.append(found.result["test_error"])
    return sum(errors) / len(errors)
