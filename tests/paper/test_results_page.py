"""The committed page says what the committed JSON says, and that says what the cells say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lqf_paper.experiments import EXPERIMENTS
from lqf_paper.report.paired import Gap
from lqf_paper.report.search_report import Row, table
from lqf_paper.report.verdicts import MARKS
from lqf_paper.runner.divergence import judged
from lqf_paper.runner.experiment import bare_percent

RESULTS = Path(__file__).resolve().parents[2] / "results"
PATHS = sorted(RESULTS.glob("*.json"))
BY_DRAWS = ("lowshot", "nlft-mse")
"""Experiments whose seeds are choices of training images."""
pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="needs the committed results")


def section_of(path: Path) -> str:
    """Of the page, without the remarks."""
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    section = page.partition(f"<!-- section {path.stem} -->")[2].partition(f"<!-- end section {path.stem} -->")[0]
    return re.sub(r"<!-- remarks .*<!-- end remarks [^>]*-->", "", section, flags=re.DOTALL)


def written(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_every_row_of_the_page_is_one_of_the_json_in_its_order(path: Path) -> None:
    values = written(path)
    searched = table([Row(**row) for row in values["searched"]])
    tables = [values["table"], *values["tables"], {"columns": searched.columns, "rows": searched.rows}]
    wanted = [line for t in tables for line in (t["columns"], ["---"] * len(t["columns"]), *t["rows"])]
    shown = [line for line in section_of(path).splitlines() if line.startswith("| ")]
    assert shown == ["| " + " | ".join(line) + " |" for line in wanted]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_every_note_of_the_page_is_one_of_the_json(path: Path) -> None:
    values, section = written(path), section_of(path)
    shown = [line[2:] for line in section.splitlines() if line.startswith("- ")]
    more = [n for n in shown if n not in values["notes"]]
    assert [n for n in values["notes"] if n not in shown] == []
    assert all(n.startswith(("Other than under `--grid paper`", "Failed: ")) for n in more)
    assert f"`{values['command']}`" in section
    n, of = len(values["cells"]), values["cells_wanted"]
    assert (f"{n} cells" if n == of else f"{n} of {of} cells") in section
    for data in values["data"]:
        assert f"{data['name']} ({data['train']} + {data['test']} images)" in section


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_errors_are_the_lowest_of_the_cells(path: Path) -> None:
    """And rows of the table are these, in per cent."""
    values = written(path)
    errors = values["summary"].get("errors") or {}
    if path.stem == "nlft-mse":  # over numbers of images, each of which is a search
        return
    names = values["table"]["columns"][1:]
    for name, methods in errors.items():
        for (method, of), row in zip(methods.items(), values["table"]["rows"], strict=False):
            cells = [
                c["result"]["test_error"]
                for c in values["cells"]
                if c["data"] == name and c["params"].get("method") == method and c["params"].get("seed", 0) == 0
            ]
            known = [e for e in cells if e is not None]
            if of["test_error"] is None:
                assert not known
                continue
            assert of["runs"][0] == min(known)
            if path.stem != "ablation":  # whose table is relative
                assert row[1 + names.index(name)].strip("*").split(" ±")[0].strip("*") == bare_percent(of["test_error"])


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_statements_are_their_differences_with_their_intervals(path: Path) -> None:
    values = written(path)
    rows = {row[0]: row[1:] for t in values["tables"] for row in t["rows"]}
    for statement in values["summary"].get("statements", []):
        shown = rows.get(statement["statement"])
        if shown is None:
            assert not statement["data"]
            continue
        for place, data in enumerate(d["name"] for d in values["data"]):
            if data in statement["data"]:
                of = dict(statement["data"][data])
                mark = MARKS[of.pop("verdict")]
                gap = Gap(**{**of, "runs": tuple(of["runs"])})
                assert gap.low <= gap.value <= gap.high
                assert shown[place] == f"{gap.points()} {mark}".strip()


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_results_in_the_json_are_those_of_the_cells(path: Path) -> None:
    kept: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for file in (RESULTS / "cells").glob("*.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        kept.setdefault((record["name"], record["seconds"]), []).append(record)
    values = written(path)
    classes = {d["name"]: d["classes"] for d in values["data"]}
    for cell in values["cells"]:
        records = kept[cell["data"], cell["seconds"]]
        settings = cell["params"].get("settings") or {}
        results = [r["result"] for r in records]
        results = [judged(r, settings, classes[cell["data"]]) if "losses" in r else r for r in results]
        assert cell["result"] in [{k: r.get(k) for k in cell["result"]} for r in results]


def test_a_mark_is_that_of_its_interval() -> None:
    for path in PATHS:
        for t in written(path)["tables"]:
            for row in t["rows"]:
                for cell in row:
                    found = re.fullmatch(r"[-+][\d.]+ \(([-+][\d.]+), ([-+][\d.]+)\)†? ?(✓|✗)?", cell)
                    if found and found[3] and " < " in row[0]:
                        low, high = float(found[1]), float(found[2])
                        assert high <= 0 if found[3] == "✓" else low >= 0


def test_the_gaps_that_are_named_are_those_of_the_results() -> None:
    """`docs/paper.md`, by what the committed JSON has."""
    text = (RESULTS.parent / "docs" / "paper.md").read_text(encoding="utf-8").partition("## What was not run")[2]
    found = {path.stem: written(path) for path in PATHS}
    counts = {m[1]: (int(m[2]), int(m[3])) for m in re.finditer(r"`([\w-]+)` has (\d+) of (\d+) cells", text)}
    cells = {n: (len(v["cells"]), v["cells_wanted"]) for n, v in found.items()}
    assert counts == {n: (there, of) for n, (there, of) in cells.items() if there < of}
    assert [n for n in EXPERIMENTS if n not in found and f"`{n}`" not in text] == []
    sets = {data["name"] for v in found.values() for data in v["data"]}
    every = {path.stem for path in (RESULTS / "data").glob("*.txt")}
    assert [n for n in every - sets if f"`{n}`" not in text] == []
    seeded = [c for n, v in found.items() if n not in BY_DRAWS for c in v["cells"] if c["params"].get("seed")]
    validated = [c for v in found.values() for c in v["cells"] if c["work"] == "validation"]
    paired = [g for v in found.values() for s in v["summary"].get("statements", []) for g in s["data"].values()]
    nothing = not seeded and not validated and not any(g["paired"] for g in paired)
    assert ("No table has a “±”" in text) == nothing
