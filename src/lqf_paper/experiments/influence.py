"""Pictures of the most and the least informative training images, of all classes and of some."""

from __future__ import annotations

from typing import Any

import numpy as np

from lqf.reports.pictures import thumbnail
from lqf_paper.experiments import summarization
from lqf_paper.report.class_names import readable
from lqf_paper.report.draw import COLOURS
from lqf_paper.runner.experiment import Results, Summary, Table
from lqf_paper.runner.workspace import Task

TITLE = "informative and uninformative images"
WHOLE = True
EACH, CLASSES, SIDE = 25, 3, 112
"""Images at each end, as in the paper; classes that have a row of their own in the table; pixels of an image."""
ACROSS, NAMED, LETTERS = 5, 4, 16
"""Pictures in a row of either end; images that the table names; letters of a class below its picture."""

cells = summarization.rankings

Ends = list[tuple[int, float]]
"""Positions among the task's training images, and their F-SI."""


def summarise(results: Results) -> Summary:
    """Images at both ends, per data set."""
    results_of = {t.name: results.where(work="informativeness", data=t.name)[0].result for t in results.tasks}
    rows = {t.name: ends(t, results_of[t.name]) for t in results.tasks}
    tasks = {t.name: t for t in results.tasks}
    table = tuple(
        (name, readable(name, of), _named(tasks[name], most), _named(tasks[name], least))
        for name, blocks in rows.items()
        for of, (most, least) in blocks.items()
    )
    values = {
        name: {of: {"most": _ids(tasks[name], a), "least": _ids(tasks[name], b)} for of, (a, b) in blocks.items()}
        for name, blocks in rows.items()
    }
    return Summary(
        values,
        Table(("data", "of", "most informative", "least informative"), table, keys=2),
        lambda figure: _draw(figure, tasks, rows),
        (
            "F-SI: the mean squared change of the outputs on held-out images when the image is left out; "
            "classes with a row of their own in the table are those whose images inform the model most on average.",
            *(f"{name}: {_how(r)}" for name, r in results_of.items()),
        ),
        size=(11.0, 1.24 * -(-EACH // ACROSS) * len(rows) + 0.5 * len(rows)),
        dpi=85,
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
    samples = task.train.samples
    shown = (
        f"{readable(task.name, samples.classes[samples.labels[i]])} (`{samples.ids[i].split('/')[-1]}`) {value:.2g}"
        for i, value in images[:NAMED]
    )
    return ", ".join(shown)


def _draw(figure: Any, tasks: dict[str, Task], rows: dict[str, dict[str, tuple[Ends, Ends]]]) -> None:
    """A block per data set: the most informative images left, the least informative ones right."""
    blocks = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
    for block, (name, lines) in zip(blocks, rows.items(), strict=True):
        titles = ("most informative", "least informative")
        sides = block.subfigures(1, 2)
        for side, title, images, colour in zip(sides, titles, lines["all classes"], COLOURS[1::-1], strict=True):
            side.suptitle(f"{name}: {title}", fontsize=11, color=colour)
            axes = side.subplots(-(-EACH // ACROSS), ACROSS, squeeze=False)
            for ax in axes.flat:
                ax.axis("off")
            for (i, value), ax in zip(images, axes.flat, strict=False):
                _picture(ax, tasks[name], i, value)


def _picture(ax: Any, task: Task, i: int, value: float) -> None:
    samples = task.train.samples
    image = thumbnail(samples, i, SIDE)
    if image is not None:
        ax.imshow(np.asarray(image))
    of = readable(task.name, samples.classes[samples.labels[i]])
    ax.set_title(f"{_cut(of, LETTERS)}\n{value:.2g}", fontsize=7, pad=2)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
