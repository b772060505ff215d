"""Random crops and the end of a run as causes of the error: LQF (paper) with and without crops, short and long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lqf_paper.report.draw import lines, panel_size, panels
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, Summary, Table, bare_percent
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "random crops and the number of epochs"
METHOD = "lqf"
AUGMENTS = {"none": "central crops", "crop": "random crops"}
EPOCHS = {"short": (25, 100, 400), "paper": (25, 50, 100, 200, 400), "quick": (2, 4)}
SETTINGS: dict[str, Any] = {"learning_rate": 0.01, "weight_decay": 1e-4}
"""The paper's rate, K-FAC damped as little as a batch allows."""


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every length with and without crops, the short ones first; what all of them would reach without crops, solved."""
    runs = [
        Cell("fit", task.name, {"method": METHOD, "seed": 0, "settings": {**SETTINGS, "augment": a, "epochs": n}})
        for n in EPOCHS[scale.name]
        for task in tasks
        for a in AUGMENTS
    ]
    return runs + [Cell("fit", task.name, {"method": "lqf-solved", "settings": {}, "seed": 0}) for task in tasks]


def summarise(results: Results) -> Summary:
    """Errors over the epochs, beside that of the exact solution on central crops."""
    found = {t.name: errors(results, t.name) for t in results.tasks}
    epochs = EPOCHS[results.scale.name]
    rows = [
        (name, label, *(_shown(of[a].get(n)) for n in epochs), _shown(solved if a == "none" else None))
        for name, (of, solved) in found.items()
        for a, label in AUGMENTS.items()
    ]
    values: dict[str, Any] = {
        name: {a: {str(n): _value(d) for n, d in by.items()} for a, by in of.items()} | {"solved": _value(solved)}
        for name, (of, solved) in found.items()
    }
    return Summary(
        values,
        Table(("data", "test error, %, after epochs", *map(str, epochs), "solved"), tuple(rows), keys=2),
        lambda figure: _draw(figure, found, epochs),
        (
            f"LQF (paper) at η = {SETTINGS['learning_rate']:g}, λ = {SETTINGS['weight_decay']:g}; the schedule ends "
            "with the run. A difference between the rows at the same number of epochs is due to the crops, one along "
            "a row to the length of the run: with central crops it ends at the exact solution of the same problem.",
        ),
        size=panel_size(len(found), 3.4, 3.0, 0.4),
    )


def errors(results: Results, name: str) -> tuple[dict[str, dict[int, Done]], Done | None]:
    """Augmentation -> epochs -> cell; and the exact solution."""
    tried = results.where(work="fit", data=name, method=METHOD)
    of = {
        a: {d.params["settings"]["epochs"]: d for d in tried if d.params["settings"]["augment"] == a} for a in AUGMENTS
    }
    solved = results.where(work="fit", data=name, method="lqf-solved")
    return of, solved[0] if solved else None


def _value(done: Done | None) -> dict[str, Any] | None:
    return None if done is None else {k: done.result[k] for k in ("test_error", "losses")}


def _shown(done: Done | None) -> str:
    return "–" if done is None else bare_percent(done.result["test_error"])


def _draw(figure: Any, found: dict[str, tuple[dict[str, dict[int, Done]], Done | None]], epochs: Sequence[int]) -> None:
    every = panels(figure, len(found))
    for k, (axes, (name, (of, solved))) in enumerate(zip(every, found.items(), strict=True)):
        series = {
            AUGMENTS[a]: [None if (d := by.get(n)) is None else d.result["test_error"] for n in epochs]
            for a, by in of.items()
        }
        lines(axes, list(map(str, epochs)), series, label="test error, %" if k == 0 else "")
        if solved is not None:
            axes.axhline(100 * solved.result["test_error"], color="black", linestyle="--", linewidth=1, label="solved")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("epochs")
        axes.set_ylim(bottom=0)
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
