"""Weight decay: solved anew or from another one's solution, and found by the slope of a validation loss."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from lqf.data import select_images
from lqf.paper.cells import Cell
from lqf.paper.decay import CLOSE, FLAT, STRIDE, Search, descend
from lqf.paper.draw import COLOURS, plain
from lqf.paper.experiment import Results, Summary, Table, percent
from lqf.paper.informativeness import VALIDATION, held_out
from lqf.paper.lab import Task
from lqf.paper.posed import LQF, Posed
from lqf.paper.scale import Scale
from lqf.paper.works import defaults, work
from lqf.settings import Settings

TITLE = "weight decay"
WHOLE = True
FACTORS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Weight decays that are solved for, relative to leave-one-out's choice, the λ0 from which the others go on."""
FAR = 100.0
"""Where the search begins: so many times λ0."""
TOL = 1e-3


@work("weight decay", tol=TOL, validation=VALIDATION, stride=STRIDE, close=CLOSE, flat=FLAT)
@defaults(Settings, **LQF)
def weight_decay(
    task: Task, *, factors: list[float], far: float, settings: dict[str, Any], seed: int = 0
) -> dict[str, Any]:
    """Errors and passes along the weight decay, from zero and from λ0's solution; and the search from ``far``."""
    lab = task.lab
    apart = held_out(task.train.samples.labels, VALIDATION, seed)
    part, validation = task.some(np.flatnonzero(~apart)), select_images(task.train, apart)
    net = copy.deepcopy(lab.network(leaky=True))
    posed = Posed.of(net, part.train, lab.preprocess, lab.device, progress=lab.progress, **{"seed": seed, **settings})
    first = posed.solve(tol=TOL)
    told: list[dict[str, Any]] = []
    for factor in factors:
        here = posed.scaled(factor)
        ways = {"scratch": here.solve(tol=TOL), "finetuned": here.solve(posed.body(first), tol=TOL)}
        told.append(
            {
                "factor": factor,
                **{w: _measured(here, s, task, validation) for w, s in ways.items()},
                "difference": float((ways["finetuned"].delta - ways["scratch"].delta).norm() / first.delta.norm()),
            }
        )
    tried = descend(
        Search(posed.scaled(far), validation, TOL, posed.fit.settings.max_passes), low=1e-3 / far, high=10.0
    )
    best = min(tried, key=lambda t: t.loss)
    total = float(posed.problem.weights.sum())
    return {
        "test_error": next(t["scratch"]["test_error"] for t in told if t["factor"] == 1.0),
        "weight_decay": posed.ridge.head / total,
        "body_weight_decay": posed.ridge.body / total,
        "validation": len(validation),
        "along": told,
        "search": [{**asdict(t), "factor": far * t.scale} for t in tried],
        "found": {"factor": far * best.scale, "loss": best.loss, "validation_error": best.error},
    }


def _measured(posed: Posed, solution: Any, task: Task, validation: Any) -> dict[str, Any]:
    return {
        "test_error": posed.error(task.test, solution),
        "validation_error": posed.error(validation, solution),
        "passes": solution.certificate.passes,
        "residual": solution.certificate.relative_residual,
    }


def cells(tasks: Sequence[Task], scale: Scale) -> list[Cell]:
    """One per data set."""
    quick = scale.name == "quick"
    factors, far = ([1.0, 10.0], 10.0) if quick else (list(FACTORS), FAR)
    settings = {"pooling": "avg", "max_passes": 15 if quick else 100}
    return [Cell("weight decay", t.name, {"factors": factors, "far": far, "settings": settings}) for t in tasks]


def summarise(results: Results) -> Summary:
    """Errors along λ, passes, and what the search found."""
    found = {d.cell.data: d.result for d in results}
    shown = [f"{t['factor']:g} λ0" for t in next(iter(found.values()))["along"]]
    rows = []
    for name, r in found.items():
        for way, label in (("scratch", "from zero"), ("finetuned", "from λ0's solution")):
            passes = sum(t[way]["passes"] for t in r["along"])
            rows.append((name, label, *(percent(t[way]["test_error"]) for t in r["along"]), str(passes)))
    notes = (
        "λ0: leave-one-out's choice; both weight decays (head and body) times the factor; "
        f"solved to a residual of {TOL:g}.",
        *(
            f"{name}: the search on {r['validation']} held-out images, begun at {r['search'][0]['factor']:g} λ0, ends "
            f"at {r['found']['factor']:.2g} λ0 after {len(r['search'])} solutions; the two solutions differ by "
            f"{max(t['difference'] for t in r['along']):.1g} of ‖δ0‖ at the most."
            for name, r in found.items()
        ),
    )
    return Summary(
        found,
        Table(("data", "test error, %", *shown, "passes"), tuple(rows)),
        lambda figure: _draw(figure, found),
        notes,
        size=(9.6, 3.2 * len(found) + 0.6),
    )


def _draw(figure: Any, found: dict[str, dict[str, Any]]) -> None:
    """Left: errors along λ. Right: the validation loss that the search saw, with its slopes."""
    for (name, r), (left, right) in zip(found.items(), figure.subplots(len(found), 2, squeeze=False), strict=True):
        xs = [t["factor"] for t in r["along"]]
        for i, (of, label) in enumerate((("test_error", "test"), ("validation_error", "validation"))):
            ys = {w: [100 * t[w][of] for t in r["along"]] for w in ("scratch", "finetuned")}
            left.plot(xs, ys["scratch"], "-", color=COLOURS[i], label=f"{label}, from zero")
            left.plot(xs, ys["finetuned"], "o", color=COLOURS[i], mfc="none", label=f"{label}, from λ0's solution")
        left.set_ylabel("error, %")
        left.set_ylim(0, max(5.0, 1.15 * left.get_ylim()[1]))
        left.set_title(name, fontsize=10, loc="left")
        steps = r["search"]
        at = [s["factor"] for s in steps]
        right.plot(at, [s["loss"] for s in steps], "o", color=COLOURS[2])
        for k, s in enumerate(steps):
            ends = [s["factor"] * 2.0**e for e in (-0.5, 0.5)]
            change = s["slope"] * 0.5 * np.log(2.0)
            right.plot(ends, [s["loss"] - change, s["loss"] + change], "-", color=COLOURS[2], linewidth=2, alpha=0.5)
            right.annotate(str(k + 1), (s["factor"], s["loss"]), xytext=(4, 5), textcoords="offset points", fontsize=8)
        right.set_ylabel("validation loss")
        for axes in (left, right):
            axes.axvline(r["found"]["factor"], color=COLOURS[2], linestyle=":", label="found by the slope")
            axes.set_xscale("log")
            axes.set_xlabel("λ/λ0")
            plain(axes)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
