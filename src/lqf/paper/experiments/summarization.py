"""Test error without the most informative, the least informative, or random training images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lqf.paper import informativeness
from lqf.paper.cells import Cell
from lqf.paper.draw import COLOURS, plain
from lqf.paper.experiment import Results, Summary, Table, percent
from lqf.paper.lab import Task
from lqf.paper.scale import Scale

TITLE = "what informative images are worth"
WHOLE = True
ORDERS = {"least": "least informative dropped", "random": "random ones dropped", "most": "most informative dropped"}


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """One fit and its refits per data set; `influence` shows pictures of the same cells."""
    settings = {"pool_channels": scale.pool_channels}
    params = {"shares": list(scale.shares), "repeats": scale.draws, "settings": settings}
    return [Cell("informativeness", task.name, params) for task in tasks]


def summarise(results: Results) -> Summary:
    """Curves over the share that was dropped."""
    found = {d.cell.data: d.result for d in results}
    shown = [f"{share:.0%}" for share in next(iter(found.values()))["curve"]["shares"]]
    rows = []
    for name, result in found.items():
        rows += [(name, label, *map(percent, result["curve"][order])) for order, label in ORDERS.items()]
        if result["again"]:
            for order in ("least", "most"):
                rows.append((name, f"{ORDERS[order]}, measured again", *map(percent, result["again"][order])))
    notes = (
        f"F-SI is measured on {informativeness.VALIDATION:.0%} of the training images, unseen by the model, "
        "and every error is that of a refit without the images, on the test images.",
        "“Measured again”: information is computed anew, in 20 parts, as images leave (exact kernel only). Random: the "
        f"mean of {next(iter(found.values()))['curve']['repeats']} draws; the band is their standard deviation.",
        *(f"{name}: {r['n']} images, information {r['level']}." for name, r in found.items()),
    )
    values = {name: {k: v for k, v in r.items() if k not in ("ids", "information")} for name, r in found.items()}
    return Summary(
        values,
        Table(("data", "test error, %, without", *shown), tuple(rows)),
        lambda figure: _draw(figure, found),
        notes,
        size=(4.2 * max(2, len(found)), 4.4),
    )


def _draw(figure: Any, found: dict[str, dict[str, Any]]) -> None:
    colours = dict(zip(ORDERS, (COLOURS[0], COLOURS[5], COLOURS[1]), strict=True))
    for k, (name, result) in enumerate(found.items()):
        axes = figure.add_subplot(1, max(2, len(found)), k + 1)
        curve, again = result["curve"], result["again"]
        xs = [100 * s for s in curve["shares"]]
        for order, label in ORDERS.items():
            ys = [100 * e for e in curve[order]]
            axes.plot(xs, ys, "o-", color=colours[order], markersize=4, label=label)
            if order == "random":
                spread = [100 * d for d in curve["random_deviation"]]
                low, high = zip(*((y - d, y + d) for y, d in zip(ys, spread, strict=True)), strict=True)
                axes.fill_between(xs, low, high, color=colours[order], alpha=0.15, linewidth=0)
            elif again:
                ys = [100 * e for e in again[order]]
                axes.plot(xs, ys, "--", color=colours[order], label=f"{label}, measured again")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("training images dropped, %")
        axes.set_ylabel("test error, %" if k == 0 else "")
        axes.set_ylim(bottom=0)
        plain(axes)
    lines = {text: line for axes in figure.axes for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
