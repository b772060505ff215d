"""An experiment's results on disk: NAME.json, NAME.png, and its section of README.md."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lqf.errors import LQFError, MissingDependency
from lqf.outputs import write_file
from lqf.paper.cells import finite
from lqf.paper.experiment import Results, Summary

HEADER = """\
# The paper's experiments

Each section is written by `lqf paper NAME`; what stands between its marks for remarks is kept when it is written again.
"""


def picture(summary: Summary) -> bytes | None:
    """The PNG; None where there is nothing to draw."""
    if summary.draw is None:
        return None
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=summary.size, dpi=150, layout="constrained")
    summary.draw(figure)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def require_matplotlib() -> None:
    """Fail now, before hours of work, where pictures cannot be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingDependency("matplotlib", "the pictures of `lqf paper`") from error


def write_results(
    out: Path, name: str, title: str, results: Results, summary: Summary, told: dict[str, Any], order: Sequence[str]
) -> list[Path]:
    """Write all three; the paths.

    Args:
        out: the folder.
        name: of the experiment.
        title: of its section.
        results: all cells.
        summary: what they show.
        told: command, hardware, … of the run.
        order: names of all experiments, in the order of their sections.
    """
    cells = [{**d.cell.describe(), "result": d.result, "seconds": d.seconds} for d in results]
    values = {
        "experiment": name,
        "title": title,
        **told,
        "scale": results.scale.describe(),
        "data": [t.describe() for t in results.tasks],
        "network": results.tasks[0].lab.describe(),
        "summary": summary.values,
        "table": {"columns": summary.table.columns, "rows": summary.table.rows},
        "notes": summary.notes,
        "cells": cells,
    }
    png = picture(summary)
    write_file(out / f"{name}.json", json.dumps(finite(values), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    paths = [out / f"{name}.json"]
    if png is not None:
        write_file(out / f"{name}.png", png)
        paths.append(out / f"{name}.png")
    page = out / "README.md"
    text = page.read_text(encoding="utf-8") if page.exists() else HEADER
    section = make_section(name, title, results, summary, told, png is not None)
    write_file(page, with_section(text, name, section, order))
    return [*paths, page]


def make_section(
    name: str, title: str, results: Results, summary: Summary, told: dict[str, Any], has_picture: bool
) -> str:
    """Markdown: heading, command, table, picture, notes."""
    machine = told["hardware"]
    data = "; ".join(f"{t.name} ({len(t.train)} + {len(t.test)} images)" for t in results.tasks)
    parts = [
        f"## {name}: {title}",
        f"`{told['command']}`  \n{machine['device']}, {machine['date']}; {told['network']} at {told['pixels']} px; "
        f"{len(results.done)} cells, {told['seconds']:.0f} s of work in all. Data: {data}.",
        summary.table.markdown(),
        *([f"![{title}]({name}.png)"] if has_picture else []),
        "\n".join(f"- {note}" for note in summary.notes),
    ]
    return "\n\n".join(p for p in parts if p)


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
