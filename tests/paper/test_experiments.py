"""Every experiment from beginning to end, on two tiny data sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lqf_paper.experiments import EXPERIMENTS


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_an_experiment_runs_from_beginning_to_end(
    name: str, carried_out: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    summary = carried_out(name)
    written = json.loads((tmp_path / f"{name}.json").read_text())
    assert written["experiment"] == name
    assert len(written["cells"]) == summary["cells"] > 0
    assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    page = (tmp_path / "README.md").read_text()
    assert f"## {name}: " in page
    assert all(f"| {cell} |" in page for cell in written["table"]["rows"][0][:1])
    cells = {file: file.read_text() for file in sorted((tmp_path / "cells").glob("*.json"))}
    gone = dict([item for item in cells.items() if json.loads(item[1])["name"] == "two"][::2])
    for file in gone:
        file.unlink()
    part = carried_out(name, finished=True)  # without every other cell of one data set
    assert summary["cells"] // 2 <= part["cells"] <= summary["cells"] - len(gone)
    assert part["of"] == summary["cells"]
    assert f"{part['cells']} of {part['of']} cells: the others are not there" in (tmp_path / "README.md").read_text()
    for file, text in gone.items():
        file.write_text(text)
    carried_out(name, finished=True)
    assert (tmp_path / "README.md").read_text() == page  # the command is the one that computes
