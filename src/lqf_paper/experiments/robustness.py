"""How much the best effective learning rate η/((1−m)b) depends on the task, for LQF and for ordinary fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lqf_paper.methods.catalogue import METHODS
from lqf_paper.methods.linear import Linear
from lqf_paper.report.compare import cells_of, edge_sentence
from lqf_paper.report.draw import COLOURS, plain
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
            edge_sentence(winners(results, METHOD_NAMES), results),
        ),
        (9.5, 3.6),
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
    """Left: the best rates. Right: the error over the rate, a line per task, LQF solid and NLFT dashed; × diverged."""
    left, right = figure.subplots(1, 2, width_ratios=(1, 2))
    for k, (m, by_task) in enumerate(curves.items()):
        rates = [r for c in by_task.values() if (r := _best_rate(c)) is not None]
        left.plot([k] * len(rates), rates, "o", color=COLOURS[k], alpha=0.7)
        left.plot([k, k], [min(rates), max(rates)], "-", color=COLOURS[k]) if rates else None
        for j, (name, c) in enumerate(by_task.items()):
            ys = [float("nan") if e is None else 100 * e for e in c.values()]
            style = "o-" if m == "lqf" else "o--"
            label = f"{METHODS[m].label}, {name}"
            colour = COLOURS[j % len(COLOURS)]
            right.plot(list(c), ys, style, color=colour, label=label, markersize=3)
            lost = [r for r, e in c.items() if e is None]
            above = right.get_xaxis_transform()  # at the upper edge, whatever the errors are
            for mark in right.plot(lost, [0.97] * len(lost), "x", color=colour, transform=above):
                mark.set_in_layout(False)
    left.set_yscale("log")
    left.set_xlim(-0.5, len(curves) - 0.5)
    left.set_xticks(range(len(curves)), [METHODS[m].label for m in curves])
    left.set_ylabel("best effective learning rate")
    right.set_xscale("log")
    right.set_xlabel("effective learning rate")
    right.set_ylabel("test error, %")
    right.set_ylim(bottom=0)
    figure.legend(loc="outside right upper", fontsize=7, handlelength=3)
    plain(left)
    plain(right)
