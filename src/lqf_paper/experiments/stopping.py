"""Random crops and the end of a run as causes of the error: LQF (paper) with and without crops, short and long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lqf_paper.report.draw import lines, panel_size, panels
from lqf_paper.report.verdicts import HOW, LESS, Statement, judge, verdict_table
from lqf_paper.report.winners import Winner, winner_of
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, Summary, Table, bare_percent
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "random crops and the number of epochs"
METHOD_NAMES = {"lqf-central": "central crops", "lqf": "random crops"}
EPOCHS = {"short": (25, 100, 400), "paper": (25, 50, 100, 200, 400), "quick": (2, 4)}
SETTINGS: dict[str, Any] = {"learning_rate": 0.01, "weight_decay": 1e-4, "damping": 0.1}
"""The paper's rate with the ρ that had the lowest training loss at it."""
SOLVED = "lqf-solved"
Runs = dict[tuple[str, int], Winner]
"""(Method, epochs) -> its runs; the exact solution has epochs 0."""


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Every length with and without crops, the short ones first; what all of them would reach without crops, solved."""
    runs = [_cell(task.name, m, n) for n in EPOCHS[scale.name] for task in tasks for m in METHOD_NAMES]
    return runs + [_cell(task.name, SOLVED, 0) for task in tasks]


def _cell(data: str, method: str, epochs: int, seed: int = 0) -> Cell:
    crops = {"augment": "crop"} if method == "lqf" else {}
    settings = {**SETTINGS, **crops, "epochs": epochs} if epochs else {}
    return Cell("fit", data, {"method": method, "seed": seed, "settings": settings})


def further(results: Results) -> list[Cell]:
    """The same with other seeds."""
    scale = results.scale
    return [Cell(c.work, c.data, {**c.params, "seed": seed}) for seed in range(1, scale.seeds) for c in results.wanted]


def summarise(results: Results) -> Summary:
    """Errors over the epochs, beside that of the exact solution on central crops; and the two causes as differences."""
    found = {t.name: _runs(results, t.name) for t in results.tasks}
    epochs = EPOCHS[results.scale.name]
    rows = []
    for name, of in found.items():
        for m, label in METHOD_NAMES.items():
            solved = None if m == "lqf" else of.get((SOLVED, 0))
            rows.append((name, label, *(_shown(of.get((m, n))) for n in epochs), _shown(solved)))
    named = {name: {f"{m} {n}": w for (m, n), w in of.items()} for name, of in found.items()}
    judged = judge(_statements(epochs), {name: dict(of) for name, of in named.items()})
    values = {name: {which: _value(w) for which, w in of.items()} for name, of in named.items()}
    images = [len(t.test) for t in results.tasks]
    return Summary(
        {**values, "statements": [j.values() for j in judged]},
        Table(("data", "test error, %, after epochs", *map(str, epochs), "solved"), tuple(rows), keys=2),
        lambda figure: _draw(figure, found, epochs, images),
        (
            f"LQF (paper) at η = {SETTINGS['learning_rate']:g}, ρ = {SETTINGS['damping']:g}, "
            f"λ = {SETTINGS['weight_decay']:g}; the schedule ends with the run. A difference between the rows at the "
            "same number of epochs is due to the crops, one along a row to the length of the run: with central crops "
            "it ends at the exact solution of the same problem.",
            HOW,
        ),
        size=panel_size(len(found), 3.4, 3.0, 0.4),
        tables=(("Causes of a lower error:", verdict_table(judged, list(found))),),
    )


def _statements(epochs: Sequence[int]) -> list[Statement]:
    crops = [
        Statement(f"random crops < central crops, {n} epochs", f"lqf {n}", f"lqf-central {n}", LESS) for n in epochs
    ]
    ends = [
        Statement(f"central crops, {n} epochs < the exact solution", f"lqf-central {n}", f"{SOLVED} 0", LESS)
        for n in epochs
    ]
    longer = [
        Statement(f"random crops, {n} epochs < {epochs[0]} epochs", f"lqf {n}", f"lqf {epochs[0]}", LESS)
        for n in epochs[1:]
    ]
    return [*crops, *ends, *longer]


def _runs(results: Results, name: str) -> Runs:
    tried = results.where(work="fit", data=name)
    return {
        (d.params["method"], d.params["settings"].get("epochs", 0)): winner_of(results, d)
        for d in tried
        if d.params["method"] in (*METHOD_NAMES, SOLVED) and d.result["test_error"] is not None
    }


def _value(found: Winner) -> dict[str, Any]:
    def of(done: Done) -> dict[str, Any]:
        return {k: done.result[k] for k in ("test_error", "losses")}

    return {"test_error": found.error, "deviation": found.deviation, "runs": [of(d) for d in found.runs]}


def _shown(found: Winner | None) -> str:
    if found is None:
        return "–"
    more = "" if found.deviation is None else f" ± {bare_percent(found.deviation)}"
    return bare_percent(found.error) + more


def _draw(figure: Any, found: dict[str, Runs], epochs: Sequence[int], images: Sequence[int]) -> None:
    every = panels(figure, len(found))
    for k, (axes, n, (name, of)) in enumerate(zip(every, images, found.items(), strict=True)):
        series = {
            label: [None if (w := of.get((m, length))) is None else w.error for length in epochs]
            for m, label in METHOD_NAMES.items()
        }
        lines(axes, list(map(str, epochs)), series, label="test error, %" if k == 0 else "", images=n)
        if (solved := of.get((SOLVED, 0))) is not None:
            axes.axhline(100 * solved.error, color="black", linestyle="--", linewidth=1, label="solved")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("epochs")
        axes.set_ylim(bottom=0)
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
