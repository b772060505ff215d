"""The demo's result for a terminal, 80 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from lqf.demo.words import NAMES, agreement, commands, comparison, composition, doubts, percent, pooling, setting

_WIDTH = 80


def show(result: dict[str, Any]) -> str:
    """What `lqf demo` prints."""
    parts = [_heading(result), _errors(result), _suspects(result), _times(result), _next(result)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _heading(result: dict[str, Any]) -> list[str]:
    return ["Solar-cell defects", *_wrapped(f"{composition(result)} {setting(result)}")]


def _errors(result: dict[str, Any]) -> list[str]:
    rows = [f"  {'':<18}  {'test error':>16}  {'leave-one-out error':>20}  {'level'}"]
    for key, m in result["models"].items():
        test = f"{percent(m['test_error'])} ± {100 * m['test_standard_error']:.1f}"
        loo = f"{percent(m['loo_error'])} ± {100 * m['loo_standard_error']:.1f}"
        rows.append(f"  {NAMES[key]:<18}  {test:>16}  {loo:>20}  {m['loo_level']}")
    notes = [pooling(result), agreement(result), comparison(result)]
    notes += [f"{NAMES[k]}: {m['loo_note']}" for k, m in result["models"].items() if m["loo_note"]]
    notes.append(f"Certificate of LQF: {result['models']['lqf']['certificate']}.")
    return [*rows, "", *_wrapped("± is one standard error. " + " ".join(notes), "  ")]


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
    return [*rows, "", *_wrapped(f"{what} {doubts(result)}", "  ")]


def _times(result: dict[str, Any]) -> list[str]:
    return ["Time", *(f"  {name:<28}{seconds:>8.1f} s" for name, seconds in _stages(result))]


def _stages(result: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for stage in result["stages"]:
        yield stage["name"], stage["seconds"]
        for name, seconds in stage.get("parts", {}).items():
            yield f"  {name}", seconds
    yield "total", result["seconds"]


def _next(result: dict[str, Any]) -> list[str]:
    return [f"Open {result['out']}/index.html", "Next", *(f"  {command}" for command in commands(result))]


def _wrapped(text: str, indent: str = "") -> list[str]:
    """Lines that fit; a path is not broken, so that it can be copied."""
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
