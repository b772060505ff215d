"""What was searched, for the results page: settings, what `--grid paper` has in addition, winners at an end, runs lost.

All of it is read off an experiment's cells: those of this run, and those that the same experiment has under the paper's
grid. A row is a method; settings that the cells name are its axes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lqf_paper.methods.catalogue import METHODS
from lqf_paper.report.grid_text import Settings, spelled, value
from lqf_paper.report.search_edges import edge_of
from lqf_paper.runner.cells import Cell
from lqf_paper.runner.experiment import Done, Experiment, Results, Table, best
from lqf_paper.runner.registry import WORKS
from lqf_paper.runner.scale import PAPER, Scale

RANGES = ("learning_rate", "weight_decay", "damping", "batch_size")
"""Settings that have a lowest and a highest value; a winner there might be beaten beyond."""
SEARCHED = (*RANGES, "augment", "bn", "epochs")
"""Settings among which the best is taken; cells that differ in others are compared, not searched."""
SIZES = ("epochs", "shots", "draws", "steps", "eigenvalues", "curvature_images", "shares", "pool_channels")
"""Fields of a scale that experiments depend on."""


@dataclass(frozen=True)
class Row:
    """One method's search, in words.

    Attributes:
        method: its label.
        length: epochs and images per batch; empty for methods without.
        tried: the settings, of the cells that are there.
        left_out: settings of the paper's grid that were not tried, and those tried in addition.
        at_edge: where the best setting is the lowest or highest of its axis.
        diverged: settings without a result.
    """

    method: str
    length: str
    tried: str
    left_out: str
    at_edge: str
    diverged: str


HEADS = ("method", "epochs, batch", "settings tried", "of the paper's grid", "best at an end of its range", "diverged")


def search_rows(results: Results, experiment: Experiment) -> list[Row]:
    """A row for every method of the experiment, in its order."""
    wanted = _by_label(results.wanted or [d.cell for d in results])
    paper = _by_label(experiment.cells(results.tasks, replace(results.scale, name="paper")))
    rows = []
    for label, cells in wanted.items():
        done = [d for d in results if _label(d.cell) == label]
        rows.append(
            Row(
                label,
                _length(cells),
                _tried(done, len(cells)),
                _left_out([d.cell for d in done], paper.get(label, [])),
                _at_edge(done),
                _diverged(done),
            )
        )
    return rows


def table(rows: Sequence[Row]) -> Table:
    """Without the columns that are empty."""
    lines = [tuple(vars(r).values()) for r in rows]
    kept = [k for k in range(len(HEADS)) if any(line[k] for line in lines)]
    return Table(tuple(HEADS[k] for k in kept), tuple(tuple(line[k] or "–" for k in kept) for line in lines))


def cut(results: Results, experiment: Experiment) -> str:
    """What is smaller than under `--grid paper`, apart from the settings; empty: nothing."""
    tasks, scale = results.tasks, results.scale
    here, found = experiment.cells(tasks, scale), []
    for name in SIZES:
        own, theirs = getattr(scale, name), getattr(PAPER, name)
        if own != theirs and experiment.cells(tasks, replace(scale, **{name: theirs})) != here:
            found.append(f"{name.replace('_', ' ')} {_listed(own)} ({_listed(theirs)})")
    return "; ".join([*found, *_limits(scale)])


def _limits(scale: Scale) -> list[str]:
    """Limits on the data, which the paper's scale has none of."""
    limits = {"classes": scale.classes, "training images per class": scale.per_class}
    return [f"at most {n} {what}" for what, n in limits.items() if n is not None]


def _listed(of: Any) -> str:
    items = of if isinstance(of, tuple) else (of,)
    return ", ".join("all" if v is None else value(v) for v in items)


def _label(cell: Cell) -> str:
    if "method" in cell.params:
        return METHODS[cell.params["method"]].label
    ways = [f"{k.replace('_', ' ')}: {'yes' if v else 'no'}" for k, v in cell.params.items() if isinstance(v, bool)]
    return ", ".join([cell.work, *ways])


def _by_label(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    out: dict[str, list[Cell]] = {}
    for cell in cells:
        out.setdefault(_label(cell), []).append(cell)
    return out


def _completed(cell: Cell) -> Settings:
    return WORKS[cell.work].complete(cell.params)["params"].get("settings") or {}


def _axes(cells: Sequence[Cell]) -> list[str]:
    """Settings that cells name; epochs, which follow from the number of images, have a column of their own."""
    named = dict.fromkeys(k for c in cells for k in c.params.get("settings") or {})
    return [k for k in named if k != "epochs"]


def _settings(cells: Sequence[Cell], axes: Sequence[str]) -> list[Settings]:
    """Each combination of the axes once; a cell declared to have no settings has none."""
    seen = {}
    for cell in (c for c in cells if c.params.get("settings", {}) is not None):
        whole = _completed(cell)
        here = {k: whole[k] for k in axes if k in whole}
        seen[json.dumps(here)] = here
    return list(seen.values())


def _length(cells: Sequence[Cell]) -> str:
    wholes = [_completed(c) for c in cells if "epochs" in (c.params.get("settings") or {})]
    if not wholes:
        return ""
    spans = [sorted({w[k] for w in wholes if w.get(k)}) for k in ("epochs", "batch_size")]
    return ", ".join(f"{s[0]}" if len(s) == 1 else f"{s[0]} to {s[-1]}" for s in spans if s)


def _tried(done: Sequence[Done], wanted: int) -> str:
    cells = [d.cell for d in done]
    counted = [] if len(cells) >= wanted else [f"({len(cells)} of {wanted} cells)"]
    return " ".join([spelled(_settings(cells, _axes(cells))), *counted]).strip()


def _left_out(cells: Sequence[Cell], paper: Sequence[Cell]) -> str:
    axes = list(dict.fromkeys([*_axes(cells), *_axes(paper)]))
    both = [*_settings(cells, axes), *_settings(paper, axes)]
    axes = [k for k in axes if len({json.dumps(s.get(k)) for s in both}) > 1]
    ours, theirs = _settings(cells, axes), _settings(paper, axes)
    missing, added = ([s for s in a if s not in b] for a, b in ((theirs, ours), (ours, theirs)))
    notes = [f"{len(missing)} of {len(theirs)} not tried: {spelled(missing)}"] if missing else []
    return ". ".join([*notes, *([f"Also tried: {spelled(added)}"] if added else [])])


def _at_edge(done: Sequence[Done]) -> str:
    """How often the best of a search is at an end of an axis, and no setting inside is as good."""
    groups: dict[str, list[Done]] = {}
    for d in done:
        params = d.completed
        fixed = {k: v for k, v in (params.get("settings") or {}).items() if k not in SEARCHED}
        groups.setdefault(json.dumps([d.cell.data, {**params, "settings": fixed}], sort_keys=True), []).append(d)
    found: dict[str, list[str]] = {}
    searches = [g for g in groups.values() if len(g) > 1]
    for group in searches:
        for axis in RANGES:
            end = _end(group, axis)
            if end:
                found.setdefault(end, []).append(group[0].cell.data)
    each = len({group[0].cell.data for group in searches}) == len(searches)
    return "; ".join(
        f"{end}: {', '.join(names)}" if each else f"{end}: {len(names)} of {len(searches)} searches"
        for end, names in found.items()
    )


def _end(group: Sequence[Done], axis: str) -> str:
    """In words; empty: inside, or an axis without an inside (two weight decays have none, two rates are reported)."""
    winner = best(group)
    which = "" if winner is None else edge_of(winner, group, axis, 2 if axis == "learning_rate" else 3)
    return f"{spelled([{axis: winner.params['settings'][axis]}])}, the {which}" if winner and which else ""


def _diverged(done: Sequence[Done]) -> str:
    lost: dict[str, list[Cell]] = {}
    for d in done:
        if d.result.get("diverged"):
            lost.setdefault(d.cell.data, []).append(d.cell)
    axes = _axes([d.cell for d in done])
    return "; ".join(f"{name}: {len(cells)}, {spelled(_settings(cells, axes))}" for name, cells in lost.items())
