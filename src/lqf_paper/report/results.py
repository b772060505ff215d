"""An experiment's results on disk: NAME.json, NAME.png, and its section of README.md."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lqf.errors import LQFError
from lqf.utils.files import write_file
from lqf.utils.json_values import dump_json
from lqf_paper.report.search_report import Row, cut, search_rows, table
from lqf_paper.runner.experiment import Experiment, Results, Summary

HEADER = """\
# The paper's experiments

Each section is written by `lqf paper NAME`; what stands between its marks for remarks is kept when it is written again.
"""


def picture(summary: Summary) -> bytes | None:
    """The PNG; None where there is nothing to draw."""
    if summary.draw is None:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=summary.size, dpi=summary.dpi, layout="constrained")
    summary.draw(figure)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


@dataclass(frozen=True)
class PageInfo:
    """What a page says of a run apart from its results.

    Attributes:
        name: of the experiment.
        experiment: itself.
        command: that computes it.
        network: name of the backbone.
        pixels: side of its input.
    """

    name: str
    experiment: Experiment
    command: str
    network: str
    pixels: int


def write_results(out: Path, info: PageInfo, results: Results, summary: Summary, order: Sequence[str]) -> list[Path]:
    """Write all three; the paths.

    Args:
        out: the folder.
        info: about the run.
        results: all cells that are there.
        summary: what they show.
        order: names of all experiments, in the order of their sections.
    """
    name, rows = info.name, search_rows(results, info.experiment)
    png = picture(summary)
    values = {**_head(info, results, summary), "searched": [vars(r) for r in rows], "cells": _cells(results)}
    write_file(out / f"{name}.json", dump_json(values, ensure_ascii=False) + "\n")
    paths = [out / f"{name}.json"]
    if png is not None:
        write_file(out / f"{name}.png", png)
        paths.append(out / f"{name}.png")
    page = out / "README.md"
    text = page.read_text(encoding="utf-8") if page.exists() else HEADER
    section = make_section(info, results, summary, rows, has_picture=png is not None)
    write_file(page, with_section(text, name, section, order))
    return [*paths, page]


def _head(info: PageInfo, results: Results, summary: Summary) -> dict[str, Any]:
    return {
        "experiment": info.name,
        "title": info.experiment.TITLE,
        "command": info.command,
        "hardware": results.hardware(),
        "pixels": info.pixels,
        "seconds": sum(d.seconds for d in results.every),
        "cells_wanted": len(results.wanted) + len(results.wanted_further),
        "failed": results.failed,
        "scale": results.scale.describe(),
        "data": [t.describe() for t in results.tasks],
        "network": results.tasks[0].workspace.describe(),
        "summary": summary.values,
        "table": asdict(summary.table),
        "tables": [{"heading": heading, **asdict(t)} for heading, t in summary.tables],
        "notes": summary.notes,
    }


def _cells(results: Results) -> list[dict[str, Any]]:
    """Every cell with all its settings, the defaults among them; predictions stay in the cells' own files."""
    return [
        {
            **d.cell.describe(),
            "params": d.completed,
            "result": {k: v for k, v in d.result.items() if not k.startswith("predictions")},
            "seconds": d.seconds,
            "side_by_side": d.side_by_side,
        }
        for d in results.every
    ]


def make_section(info: PageInfo, results: Results, summary: Summary, rows: Sequence[Row], *, has_picture: bool) -> str:
    """Markdown: heading, command, table, picture, notes, what was searched."""
    title, cut_down = info.experiment.TITLE, cut(results, info.experiment)
    notes = [*summary.notes, *([f"Other than under `--grid paper` (in brackets): {cut_down}."] if cut_down else [])]
    notes += [f"Failed: {cell}: {why}" for cell, why in results.failed.items()]
    parts = [
        f"## {info.name}: {title}",
        _about(info, results),
        summary.table.markdown(),
        *([f"![{title}]({info.name}.png)"] if has_picture else []),
        *(f"{heading}\n\n{t.markdown()}" for heading, t in summary.tables),
        "\n".join(f"- {note}" for note in notes),
        "What was searched:",
        table(rows).markdown(),
    ]
    return "\n\n".join(p for p in parts if p)


def _about(info: PageInfo, results: Results) -> str:
    """Command, machine, size, and what is missing."""
    machine, seconds = results.hardware(), sum(d.seconds for d in results.every)
    data = "; ".join(f"{t.name} ({len(t.train)} + {len(t.test)} images)" for t in results.tasks)
    processes = max(d.side_by_side for d in results.every)
    work = f"{seconds:.0f} s of work in all" + (f", up to {processes} side by side" if processes > 1 else "")
    lost = len(results.wanted) + len(results.wanted_further) - len(results.every)
    missing = f" **{results.counted}: the others are not there, and the best is that of these.**" if lost > 0 else ""
    there, further = len(results.further), len(results.wanted_further)
    if further:
        beyond = f"{there}" if there == further else f"{there} of {further}"
        missing += f" Beyond the search {beyond} cells: repeats with other seeds, settings judged by validation."
    return (
        f"`{info.command}`  \n{machine['device']}, {machine['date']}; {info.network} at {info.pixels} px; "
        f"grid {results.scale.name}, {results.counted}, {work}. Data: {data}.{missing}"
    )


def with_section(text: str, name: str, section: str, order: Sequence[str]) -> str:
    """The page with one section written anew; all others, and its remarks, stay."""
    sections = _sections(text)
    remarks = _remarks(sections.get(name, ""), name)
    sections[name] = f"{section}\n\n<!-- remarks {name} -->\n{remarks}<!-- end remarks {name} -->"
    known = [*(n for n in order if n in sections), *sorted(n for n in sections if n not in order)]
    head = text.split("<!-- section ")[0].rstrip()
    blocks = [f"<!-- section {n} -->\n{sections[n]}\n<!-- end section {n} -->" for n in known]
    return "\n\n".join([head, *blocks]) + "\n"


def _sections(text: str) -> dict[str, str]:
    found = re.findall(r"<!-- section (\S+) -->\n(.*?)\n<!-- end section \1 -->", text, re.DOTALL)
    if len(found) != text.count("<!-- section "):
        raise LQFError("the results' README.md has a section without its end mark; repair it, or delete the file")
    return dict(found)


def _remarks(section: str, name: str) -> str:
    found = re.search(rf"<!-- remarks {re.escape(name)} -->\n(.*?)<!-- end remarks", section, re.DOTALL)
    return found.group(1) if found else ""
