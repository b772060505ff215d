"""How much the best effective learning rate η/((1−m)b) depends on the task, for LQF and for ordinary fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lqf_paper.methods.catalogue import METHODS
from lqf_paper.methods.linear import Linear
from lqf_paper.report.compare import cells_of, edge_sentence
from lqf_paper.report.draw import ACROSS, COLOURS, FROM_BOXES, panel_size, panels, plain, round_ticks
from lqf_paper.report.winners import winners
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Results, Summary, Table, bare_percent, best
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task

TITLE = "the best effective learning rate per task"
METHOD_NAMES = ("lqf", "nlft")
MOMENTUM = 0.9


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Both methods over rates, batch sizes and weight decays."""
    return cells_of({"lqf": "robustness-lqf", "nlft": "robustness"}, tasks, scale)


def effective(settings: dict[str, Any]) -> float:
    """η/((1−m)b)."""
    return settings["learning_rate"] / ((1 - MOMENTUM) * settings.get("batch_size", Linear.batch_size))


def curve(tried: Sequence[Done]) -> dict[float, float | None]:
    """Effective rate -> the lowest error of all runs with it; None where all diverged."""
    rates = sorted({_rounded(d) for d in tried})
    groups = {r: best([d for d in tried if _rounded(d) == r]) for r in rates}
    return {r: None if d is None else d.result["test_error"] for r, d in groups.items()}


def _rounded(done: Done) -> float:
    return float(f"{effective(done.params['settings']):.6g}")


def common(curves: Sequence[dict[float, float | None]]) -> tuple[float, float] | None:
    """The one rate that costs least on all tasks, and what it costs: the mean increase of the error over each best.

    A task where it diverges counts as an error of 1.
    """
    known = [{r: 1.0 if e is None else e for r, e in c.items()} for c in curves if c]
    shared = set.intersection(*(set(c) for c in known)) if known else set()
    if not shared:
        return None
    cost = {r: sum(c[r] - min(c.values()) for c in known) / len(known) for r in shared}
    at = min(sorted(cost), key=lambda r: cost[r])
    return at, cost[at]


def summarise(results: Results) -> Summary:
    """Best rates, their spread, and what a single rate for all tasks would cost."""
    curves = {m: {t.name: curve(results.where(data=t.name, method=m)) for t in results.tasks} for m in METHOD_NAMES}
    values = {m: _values(by_task) for m, by_task in curves.items()}
    return Summary(
        {"curves": _by_text(curves), **values},
        _table(values, [t.name for t in results.tasks]),
        lambda figure: _draw(figure, curves),
        (
            "The rate is η/((1−m)b); a run that diverged (× in the picture) counts as an error of 100 %.",
            _spread_sentence(values),
            edge_sentence(winners(results, METHOD_NAMES), results),
        ),
        panel_size(len(results.tasks), 2.9, 3.0, 1.9),
    )


def _spread_sentence(values: dict[str, dict[str, Any]]) -> str:
    """What the paper says of the best rates, and what a few tasks say of that."""
    spread = ", ".join(f"{METHODS[m].label} {v['decades']:.2f}" for m, v in values.items() if v["decades"] is not None)
    n = max(sum(r is not None for r in v["best_rate"].values()) for v in values.values())
    return (
        "The paper: LQF's best rates lie closer together than NLFT's. Decades between the lowest and the highest here: "
        f"{spread or '–'}, over {n} tasks; so few have no interval, and there is no verdict."
    )


def _table(values: dict[str, dict[str, Any]], names: Sequence[str]) -> Table:
    """A row per quantity, a column per method."""

    def row(label: str, of: Callable[[dict[str, Any]], str]) -> tuple[str, ...]:
        return (label, *map(of, values.values()))

    def rate(r: float | None) -> str:
        return "–" if r is None else f"{r:.2g}"

    rows = [
        *(row(f"best rate, {n}", lambda v, n=n: rate(v["best_rate"][n])) for n in names),  # type: ignore[misc]
        row("decades between these", lambda v: "–" if v["decades"] is None else f"{v['decades']:.2f}"),
        row("one rate for all", lambda v: rate(v["one_rate"])),
        row("points lost by it", lambda v: bare_percent(v["one_rate_cost"], 2)),
        *(row(f"worst − best, {n}", lambda v, n=n: bare_percent(v["spread"][n])) for n in names),  # type: ignore[misc]
    ]
    return Table(("", *(METHODS[m].label for m in values)), tuple(rows))


def _values(by_task: dict[str, dict[float, float | None]]) -> dict[str, Any]:
    rates = {name: _best_rate(c) for name, c in by_task.items()}
    known = [r for r in rates.values() if r is not None]
    one = common(list(by_task.values()))
    filled = {name: [1.0 if e is None else e for e in c.values()] for name, c in by_task.items()}
    return {
        "best_rate": rates,
        "decades": math.log10(max(known) / min(known)) if known else None,
        "one_rate": one and one[0],
        "one_rate_cost": one and one[1],
        "spread": {name: max(v) - min(v) if v else None for name, v in filled.items()},
    }


def _best_rate(c: dict[float, float | None]) -> float | None:
    known = {r: e for r, e in c.items() if e is not None}
    return min(known, key=lambda r: known[r]) if known else None


def _by_text(curves: dict[str, dict[str, dict[float, float | None]]]) -> dict[str, Any]:
    return {m: {t: {f"{r:g}": e for r, e in c.items()} for t, c in by_task.items()} for m, by_task in curves.items()}


def _draw(figure: Any, curves: dict[str, dict[str, dict[float, float | None]]]) -> None:
    """Above: the best rate of every task. Below: the error over the rate, a panel per task. A colour is a method."""
    names = list(next(iter(curves.values())))
    above, below = figure.subfigures(2, 1, height_ratios=(1.0, 1.7 * -(-len(names) // ACROSS)))
    _draw_best(above.subplots(), curves)
    for axes, name in zip(panels(below, len(names)), names, strict=True):
        for k, (m, by_task) in enumerate(curves.items()):
            c = by_task[name]
            ys = [float("nan") if e is None else 100 * e for e in c.values()]
            axes.plot(list(c), ys, "o-", color=COLOURS[k], label=METHODS[m].label, markersize=4)
            lost = [r for r, e in c.items() if e is None]
            edge = axes.get_xaxis_transform()  # at the upper edge, whatever the errors are
            for mark in axes.plot(lost, [0.97 - 0.05 * k] * len(lost), "x", color=COLOURS[k], transform=edge):
                mark.set_in_layout(False)
        axes.set_xscale("log")
        axes.set_xlabel("effective learning rate")
        axes.set_ylim(bottom=0)
        axes.set_title(name, fontsize=10)
        plain(axes)
    first = below.axes[0]
    first.set_ylabel("test error, %")
    first.legend(fontsize=8, frameon=False)


def _draw_best(axes: Any, curves: dict[str, dict[str, dict[float, float | None]]]) -> None:
    """A row per method with the best rate of every task; from `FROM_BOXES` tasks on a box around half of them."""
    for k, by_task in enumerate(curves.values()):
        rates = [r for c in by_task.values() if (r := _best_rate(c)) is not None]
        at = len(curves) - k
        if len(rates) >= FROM_BOXES:
            axes.boxplot([rates], positions=[at], orientation="horizontal", widths=0.6, whis=(0, 100))
        for place in sorted(set(rates)):  # tasks with the same best rate lie beside each other
            n = rates.count(place)
            heights = [at + 0.14 * (i - (n - 1) / 2) for i in range(n)]
            axes.plot([place] * n, heights, "o", color=COLOURS[k], alpha=0.8, markersize=6)
    axes.set_xscale("log")
    round_ticks(axes.xaxis)
    axes.set_yticks(range(len(curves), 0, -1), [METHODS[m].label for m in curves])
    axes.set_ylim(0.4, len(curves) + 0.6)
    axes.set_xlabel("best effective learning rate η/((1−m)b), a point per task")
    plain(axes)
