"""The demo's result for a terminal, 80 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from lqf.demo import words
from lqf.demo.words import percent
from lqf.reports.rungs import rung_rows

_WIDTH = 80


def show(result: dict[str, Any]) -> str:
    """What `lqf demo` prints."""
    parts = [_heading(result), _rungs(result), _suspects(result), _times(result), _next(result)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _heading(result: dict[str, Any]) -> list[str]:
    return ["Solar-cell defects", *_wrapped(f"{words.composition(result)} {words.setting(result)}")]


def _rungs(result: dict[str, Any]) -> list[str]:
    rows = [f"  {'tried':<20}  {'out of sample':>13}  {'test error':>12}  {'gain':>14}  {'time':>5}"]
    for r in rung_rows(result["rungs"]):
        if r["error"] is None and not r["kept"]:
            rows += _wrapped(f"  {r['name']:<20}  {r['verdict']}", " " * 24, first="")
            continue
        out, test = (_error(r[f"{what}error"], r[f"{what}standard_error"]) for what in ("", "test_"))
        rows.append(f"  {r['name']:<20}  {out:>13}  {test:>12}  {r['gained']:>14}  {r['took']:>5}".rstrip())
        rows[-1] += "*" if r["kept"] else ""
    notes = ["* kept.", "± is one standard error; gains are in cross-entropy, out of sample, over the best before."]
    notes += [words.model(result), words.whole_network(result), words.agreement(result), words.comparison(result)]
    notes.append(f"Certificate: {result['model']['certificate']}.")
    return [*rows, "", *_wrapped(" ".join(filter(None, notes)), "  ")]


def _error(error: float | None, standard_error: float | None) -> str:
    return "" if error is None or standard_error is None else f"{percent(error)} ± {100 * standard_error:.1f}"


def _suspects(result: dict[str, Any]) -> list[str]:
    cells = result["suspicious"]
    if not cells:
        return ["No training label is contradicted by the other cells."]
    rows = [
        "Training cells whose label looks wrong, the strongest contradiction first",
        f"  {'cell':<22}  {'kind':<4}  {'label':<10}  {'annotated':>9}  {'leave-one-out':>13}",
    ]
    for c in cells:
        p = percent(c["loo_probability"], 0)
        rows.append(f"  {c['id']:<22}  {c['kind']:<4}  {c['label']:<10}  {c['annotated']:>9}  {p:>13}")
    what = "The last two columns are probabilities of a defect: the annotators', and the model's without that cell."
    return [*rows, "", *_wrapped(f"{what} {words.doubts(result)}", "  ")]


def _times(result: dict[str, Any]) -> list[str]:
    return ["Time", *(f"  {name:<28}{seconds:>8.1f} s" for name, seconds in _stages(result))]


def _stages(result: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for stage in result["stages"]:
        yield stage["name"], stage["seconds"]
        for name, seconds in stage.get("parts", {}).items():
            yield f"  {name}", seconds
    yield "total", result["seconds"]


def _next(result: dict[str, Any]) -> list[str]:
    lines = [f"Open {result['out']}/index.html", "Next", *(f"  {command}" for command in words.commands(result))]
    further = words.further(result)
    return lines if further is None else [*lines, f"Climb on, {further[0]}", f"  {further[1]}"]


def _wrapped(text: str, indent: str = "", *, first: str | None = None) -> list[str]:
    """Lines that fit; a path is not broken, so that it can be copied."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
