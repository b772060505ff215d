"""Committed figures are JSON that says what it was measured on."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
EXPERIMENTS = sorted((ROOT / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda p: p.stem)
def test_a_result_names_its_hardware_and_date(path: Path) -> None:
    written = json.loads(path.read_text(encoding="utf-8"))
    assert {"device", "date"} <= set(written["hardware"])
    assert "/root" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
def test_an_experiment_of_the_paper_has_its_picture_its_section_and_its_cells(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    written = json.loads(text)
    page = (path.parent / "README.md").read_text(encoding="utf-8")
    section = page.partition(f"<!-- section {path.stem} -->")[2].partition(f"<!-- end section {path.stem} -->")[0]
    assert path.with_suffix(".png").is_file()
    assert all(" | ".join(row) in section for row in written["table"]["rows"])
    assert written["hardware"]["device"] in section
    assert written["hardware"]["date"] in section
    kept = len(list((path.parent / "cells").glob("*.json")))
    assert len(written["cells"]) <= min(kept, written["cells_wanted"])
    assert "/root" not in text
