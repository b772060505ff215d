"""Spectra: ordinary fine-tuning finds well-conditioned weights by itself, LQF needs a preconditioner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lqf_paper.report.draw import COLOURS, panel_size, panels, plain, round_ticks
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, Summary, Table
from lqf_paper.runner.grid import grid
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task
from lqf_paper.studies import curvatures

TITLE = "curvature before and after fine-tuning, and under K-FAC"
WHOLE = True
PAPER_MODE: dict[str, Any] = {
    "form": "w0",
    "head": "random",
    "pooling": "avg",
    "weight_decay": 1e-4,
    "body_weight_decay": 1e-4,
}
"""The paper's LQF: around w0 with a random head, one weight decay."""
CAPTION = "κ = λ₁/λ̄: the largest eigenvalue over the mean of all directions in which the outputs move"
LABELS = {
    "initial": "NLFT, at the beginning",
    "tuned": "NLFT, at the end",
    "lqf": "LQF",
    "kfac": "LQF, preconditioned",
}


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Four spectra per data set; those around the same linearisation are one cell."""
    made = []
    for task in tasks:
        images = min(scale.curvature_images, len(task.train))
        k = {"k": min(scale.eigenvalues, most(images, len(task.classes))), "images": images}
        tuned = {"epochs": scale.epochs_for(len(task.train)), **grid("eigenvalues", scale.name)[0]}
        made += [Cell("spectrum of nlft", task.name, {**k, "settings": s}) for s in (None, tuned)]
        made.append(Cell("spectra of lqf", task.name, {**k, "settings": PAPER_MODE}))
    return made


def most(images: int, classes: int) -> int:
    """How many eigenvalues are asked for at most: half the rank; the others are zero, or all the same."""
    return max(2, images * (classes - 1) // 2)


def summarise(results: Results) -> Summary:
    """Largest eigenvalue and condition numbers of each."""
    found = {t.name: _of(results, t.name) for t in results.tasks}
    k = max(len(s["values"]) for spectra in found.values() for s in spectra.values())
    rows = tuple(
        (name, LABELS[which], *map(_number, (s["values"][0], s["mean"], s["prominence"], s["condition"])))
        for name, spectra in found.items()
        for which, s in spectra.items()
    )
    return Summary(
        found,
        Table(("data", "Hessian", "λ₁", "mean", "λ₁/mean", f"λ₁/λ_{k}"), rows, keys=2),
        lambda figure: _draw(figure, found),
        (
            f"The {k} largest eigenvalues by Lanczos iterations (ARPACK, relative tolerance {curvatures.TOL:g}) on "
            f"{results.scale.curvature_images} training images at most. The mean is that of the directions in "
            f"which the outputs move, N·C or N·(C − 1) of them: the trace, by {curvatures.PROBES} random vectors, over "
            "their number. Both λ₁/mean and λ₁/λ_k are condition numbers κ of a part of the spectrum: the whole one "
            "ends at the weight decay, or at zero.",
            "NLFT: mean cross entropy, all weights, batch normalisation in eval mode. LQF: mean squared error around "
            "w0 with a random head, λ = 1e-4; preconditioned by P, the head's block and K-FAC (damped).",
        ),
        size=panel_size(len(found), 3.6, 3.6, 0.3),
    )


def _of(results: Results, name: str) -> dict[str, dict[str, Any]]:
    nlft = results.where(work="spectrum of nlft", data=name)
    lqf = results.where(work="spectra of lqf", data=name)[0].result

    def one(done: Sequence[Done], is_it: Any) -> dict[str, Any]:
        return next(d.result for d in done if is_it(d.params))

    return {
        "initial": one(nlft, lambda p: p["settings"] is None),
        "tuned": one(nlft, lambda p: p["settings"] is not None),
        "lqf": lqf["lqf"],
        "kfac": lqf["kfac"],
    }


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if 100 <= value < 1e6 else f"{value:.3g}"


def _draw(figure: Any, found: dict[str, dict[str, dict[str, Any]]]) -> None:
    """A panel per data set: λ over the mean, in order, a line per Hessian."""
    for axes, (name, spectra) in zip(panels(figure, len(found)), found.items(), strict=True):
        for i, (which, s) in enumerate(spectra.items()):
            values = [v / s["mean"] for v in s["values"] if v > 0 and s["mean"] > 0]
            label = f"{LABELS[which]}: κ = {_number(s['prominence'])}"
            axes.plot(range(1, len(values) + 1), values, ".-", color=COLOURS[i], markersize=4, label=label)
        axes.set_yscale("log")
        axes.set_xlabel("number of the eigenvalue, the largest first")
        axes.set_title(name, fontsize=10)
        axes.legend(frameon=False, fontsize=7.5)
        axes.xaxis.get_major_locator().set_params(integer=True)
        round_ticks(axes.yaxis)
        plain(axes)
    figure.supylabel("eigenvalue over the mean, λ/λ̄", fontsize=10)
    figure.supxlabel(CAPTION, fontsize=8)
