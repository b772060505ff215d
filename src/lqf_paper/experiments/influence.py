"""Pictures of the most and the least informative training images, of all classes and of some."""

from __future__ import annotations

from typing import Any

import numpy as np

from lqf.reports.pictures import thumbnail
from lqf_paper.experiments import summarization
from lqf_paper.report.draw import COLOURS
from lqf_paper.runner.experiment import Results, Summary, Table
from lqf_paper.runner.workspace import Task

TITLE = "informative and uninformative images"
WHOLE = True
EACH, CLASSES, SIDE = 6, 3, 112
"""Images at each end of a row, classes that have a row of their own, pixels of an image."""

cells = summarization.rankings

Ends = list[tuple[int, float]]
"""Positions among the task's training images, and their F-SI."""


def summarise(results: Results) -> Summary:
    """Rows of images at both ends, per data set."""
    results_of = {t.name: results.where(work="informativeness", data=t.name)[0].result for t in results.tasks}
    rows = {t.name: ends(t, results_of[t.name]) for t in results.tasks}
    tasks = {t.name: t for t in results.tasks}
    table = tuple(
        (name, of, _named(tasks[name], most), _named(tasks[name], least))
        for name, blocks in rows.items()
        for of, (most, least) in blocks.items()
    )
    values = {
        name: {of: {"most": _ids(tasks[name], a), "least": _ids(tasks[name], b)} for of, (a, b) in blocks.items()}
        for name, blocks in rows.items()
    }
    lines = sum(len(blocks) for blocks in rows.values())
    return Summary(
        values,
        Table(("data", "of", "most informative", "least informative"), table, keys=2),
        lambda figure: _draw(figure, tasks, rows),
        (
            "F-SI: the mean squared change of the outputs on held-out images when the image is left out; "
            "classes with a row of their own are those whose images inform the model most on average.",
            *(f"{name}: {_how(r)}" for name, r in results_of.items()),
        ),
        size=(12.0, 1.2 * lines + 0.6 * len(rows)),
        dpi=100,
    )


def _how(result: dict[str, Any]) -> str:
    """How exact the ranking is."""
    note = f" ({result['note']})" if result["level"] == "estimated" else ""
    return f"{result['n']} images, F-SI on {result['validation']} others, {result['level']}{note}."


def ends(task: Task, result: dict[str, Any]) -> dict[str, tuple[Ends, Ends]]:
    """Most and least informative images of all classes, and of the classes with the highest mean."""
    place = {name: i for i, name in enumerate(task.train.samples.ids)}
    at, values = np.array([place[i] for i in result["ids"]]), np.array(result["information"])
    labels = task.train.samples.labels[at]
    means = [values[labels == c].mean() if (labels == c).any() else -1.0 for c in range(len(task.classes))]
    blocks = {"all classes": (at, values)}
    for c in np.argsort(means)[::-1][:CLASSES]:
        blocks[task.classes[c]] = (at[labels == c], values[labels == c])
    return {name: _ends(*block) for name, block in blocks.items()}


def _ends(at: np.ndarray, values: np.ndarray) -> tuple[Ends, Ends]:
    """No image is at both ends."""
    order = np.argsort(values, kind="stable")
    each = min(EACH, len(order) // 2)
    most, least = order[::-1][:each], order[:each]
    return tuple([(int(at[i]), float(values[i])) for i in end] for end in (most, least))  # type: ignore[return-value]


def _ids(task: Task, images: Ends) -> list[dict[str, Any]]:
    return [{"id": task.train.samples.ids[i], "information": value} for i, value in images]


def _named(task: Task, images: Ends) -> str:
    shown = [f"`{task.train.samples.ids[i]}` {value:.2g}" for i, value in images[:2]]
    return ", ".join(shown)


def _draw(figure: Any, tasks: dict[str, Task], rows: dict[str, dict[str, tuple[Ends, Ends]]]) -> None:
    """One row per line: most informative images, a gap, least informative ones."""
    blocks = figure.subfigures(len(rows), 1, squeeze=False, height_ratios=[len(b) + 0.4 for b in rows.values()])[:, 0]
    for block, (name, lines) in zip(blocks, rows.items(), strict=True):
        block.suptitle(f"{name}: most informative (left) and least informative (right)", fontsize=11)
        axes = block.subplots(len(lines), 2 * EACH + 1, squeeze=False, width_ratios=[1] * EACH + [0.25] + [1] * EACH)
        for ax in axes.flat:
            ax.axis("off")
        for line, (of, both) in zip(axes, lines.items(), strict=True):
            whole = of == "all classes"
            line[0].text(
                -0.12, 0.5, _cut(of, 18), transform=line[0].transAxes, rotation=90, ha="right", va="center", fontsize=8
            )
            for images, places, colour in zip(both, (line[:EACH], line[EACH + 1 :]), COLOURS[1::-1], strict=True):
                for (i, value), ax in zip(images, places, strict=False):
                    _picture(ax, tasks[name], i, value, colour, named=whole)


def _picture(ax: Any, task: Task, i: int, value: float, colour: str, *, named: bool) -> None:
    samples = task.train.samples
    image = thumbnail(samples, i, SIDE)
    if image is not None:
        ax.imshow(np.asarray(image))
    title = f"{_cut(samples.classes[samples.labels[i]], 14)}\n{value:.2g}" if named else f"{value:.2g}"
    ax.set_title(title, fontsize=6.5, color=colour, pad=2)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
