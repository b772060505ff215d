"""Test error without the most informative, the least informative, or random training images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lqf.analysis.elimination import STEPS
from lqf_paper.report.draw import COLOURS, panel_size, panels, plain
from lqf_paper.report.verdicts import HOW, LESS, MORE, Judged, Range, judge_errors, verdict_table
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Results, Summary, Table, bare_percent
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task
from lqf_paper.studies import informativeness

TITLE = "what informative images are worth"
WHOLE = True
JUDGED_AT = 0.4
"""Share of the images without which errors are compared."""
ORDERS = {"least": "least informative dropped", "random": "random ones dropped", "most": "most informative dropped"}
KFAC = "removal as K-FAC estimates it"
OTHERS = {"least": "the least", "random": "random ones"}
SETTINGS: dict[str, Any] = {"pooling": "avg", "head": "random"}
"""The paper's model: average pooling, a random head at the linearisation point, which no label has entered; so a
solution without some images has seen nothing of them but in the choice of the weight decays."""


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """Per data set the ranking with its refits, refits without random images and of a ranking that is made again."""
    made = []
    for task in tasks:
        params = _params(task, scale)
        exact = params["solver"] == "dense"
        made.append(Cell("informativeness", task.name, {**params, "draws": scale.draws if exact else 0}))
        if not exact:
            made.append(Cell("removal at random", task.name, {**params, "draws": scale.draws}))
            made.append(Cell("removal as measured again", task.name, params))
    return made


def further(results: Results) -> list[Cell]:
    """The paper's ranking by K-FAC, beside the others."""
    return [Cell(KFAC, t.name, _params(t, results.scale)) for t in results.tasks]


def rankings(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """The cells that rank images, for `influence`."""
    return [c for c in cells(tasks, scale) if c.work == "informativeness"]


def _params(task: Task, scale: Scale) -> dict[str, Any]:
    return {"solver": informativeness.solver_for(task), "shares": list(scale.shares), "settings": dict(SETTINGS)}


def summarise(results: Results) -> Summary:
    """Curves over the share that was dropped."""
    found = {t.name: curves(results, t.name) for t in results.tasks}
    shown = [f"{share:.0%}" for share in next(iter(found.values()))["shares"]]
    rows = []
    for name, result in found.items():
        rows += [(name, label, *map(bare_percent, result[order])) for order, label in ORDERS.items()]
        if result["again"]:
            for order in ("least", "most"):
                rows.append((name, f"{ORDERS[order]}, measured again", *map(bare_percent, result["again"][order])))
        if result["by_kfac"]:
            for order in ("least", "most"):
                rows.append((name, f"{ORDERS[order]}, by K-FAC", *map(bare_percent, result["by_kfac"][order])))
    notes = (
        f"F-SI is measured on {informativeness.VALIDATION:.0%} of the training images, unseen by the model (average "
        "pooling, around a random head), and every error is that of a new solution without the images, on the test "
        "images; the weight decays stay those of the whole.",
        f"“Measured again”: information is computed anew, in {STEPS} parts, as images leave; where it is estimated, by "
        f"the kernel averaged over the outputs. Random: the mean of {next(iter(found.values()))['draws']} draws; the "
        "band is their standard deviation.",
        "“By K-FAC”: the paper's estimate, K-FAC in place of the Hessian, ranked once.",
        *(f"{name}: {how(r)}" for name, r in found.items()),
        HOW,
    )
    judged = judge_orders({t.name: len(t.test) for t in results.tasks}, found)
    return Summary(
        {**found, "statements": [j.values() for j in judged]},
        Table(("data", "test error, %, without", *shown), tuple(rows), keys=2),
        lambda figure: _draw(figure, found),
        notes,
        size=panel_size(len(found), 4.2, 3.8, 0.8),
        tables=((f"Statements, without {JUDGED_AT:.0%} of the images:", verdict_table(judged, list(found))),),
    )


def judge_orders(images: Mapping[str, int], found: Mapping[str, Mapping[str, Any]]) -> list[Judged]:
    """The orders at the share next to `JUDGED_AT`, ranked once and measured again; the paper states the first."""

    def at(result: Mapping[str, Any], order: str, again: bool) -> float | None:
        of = (result["again"] or {}).get(order) if again and order != "random" else result[order]
        k = min(range(len(result["shares"])), key=lambda k: abs(result["shares"][k] - JUDGED_AT))
        return None if of is None else of[k]

    def judged(order: str, to: str, claimed: Range, again: bool) -> Judged:
        word = "higher" if claimed == MORE else "lower"
        text = f"without the {order} informative the error is {word} than without {OTHERS[to]}"
        errors = {n: (at(r, order, again), at(r, to, again), images[n]) for n, r in found.items()}
        return judge_errors(text + (", measured again" if again else ""), claimed, errors)

    pairs = (("most", "least", MORE), ("most", "random", MORE), ("least", "random", LESS))
    return [judged(order, to, claimed, again) for again in (False, True) for order, to, claimed in pairs]


def curves(results: Results, name: str) -> dict[str, Any]:
    """What the cells of one data set say together."""
    ranked = results.where(work="informativeness", data=name)[0].result
    alone = [d.result for d in results.where(work="removal at random", data=name)]
    again = [d.result for d in results.where(work="removal as measured again", data=name)]
    draws = np.array([errors for r in (ranked, *alone) for errors in r["random"]])
    paper = [d.result for d in results.further if d.cell.work == KFAC and d.cell.data == name]
    solved = [r for r in (ranked, *alone, *again, *paper) if r["residual"] is not None]
    return {
        **{k: v for k, v in ranked.items() if k not in ("ids", "information", "standard_error")},
        "random": draws.mean(0).tolist(),
        "random_deviation": draws.std(0, ddof=min(1, len(draws) - 1)).tolist(),
        "draws": len(draws),
        "again": again[0]["again"] if again else ranked["again"],
        "by_kfac": {**paper[0], "correlation": correlation(paper[0], ranked)} if paper else None,
        "residual": max((r["residual"] for r in solved), default=None),
        "passes": sum(r["passes"] for r in solved) if solved else None,
    }


def correlation(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Spearman's, of the information of the same images."""
    ranks = [np.argsort(np.argsort(r["information"], kind="stable")).astype(float) for r in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def how(result: dict[str, Any]) -> str:
    """How exact ranking and refits are, as a sentence."""
    paper = result["by_kfac"]
    alike = f" Rank correlation of the paper's estimate with it: {paper['correlation']:.2f}." if paper else ""
    if result["residual"] is None:
        return f"{result['n']} images; ranking and refits are exact, from the kernel of all outputs.{alike}"
    return (
        f"{result['n']} images; the ranking is {result['level']} ({result['note']}); refits are solutions of the whole "
        f"model with a measured relative residual of {result['residual']:.1e} at the worst, {result['passes']} passes "
        f"in all.{alike}"
    )


def _draw(figure: Any, found: dict[str, dict[str, Any]]) -> None:
    colours = dict(zip(ORDERS, (COLOURS[0], COLOURS[5], COLOURS[1]), strict=True))
    every = panels(figure, len(found))
    for k, (axes, (name, result)) in enumerate(zip(every, found.items(), strict=True)):
        xs, again = [100 * s for s in result["shares"]], result["again"]
        for order, label in ORDERS.items():
            ys = [100 * e for e in result[order]]
            axes.plot(xs, ys, "o-", color=colours[order], markersize=4, label=label)
            if order == "random":
                spread = [100 * d for d in result["random_deviation"]]
                low, high = zip(*((y - d, y + d) for y, d in zip(ys, spread, strict=True)), strict=True)
                axes.fill_between(xs, low, high, color=colours[order], alpha=0.15, linewidth=0)
            elif again:
                ys = [100 * e for e in again[order]]
                axes.plot(xs, ys, "--", color=colours[order], label=f"{label}, measured again")
            if order != "random" and result["by_kfac"]:
                ys = [100 * e for e in result["by_kfac"][order]]
                axes.plot(xs, ys, ":", color=colours[order], label=f"{label}, by K-FAC")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("training images dropped, %")
        axes.set_ylabel("test error, %" if k == 0 else "")
        axes.set_ylim(bottom=0)
        plain(axes)
    lines = {text: line for axes in figure.axes for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
