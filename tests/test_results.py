"""Committed figures are JSON that says what it was measured on."""

import json
from pathlib import Path

import pytest

RESULTS = sorted((Path(__file__).parents[1] / "benchmarks" / "results").glob("*.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda p: p.stem)
def test_a_result_names_its_hardware_and_date(path: Path) -> None:
    told = json.loads(path.read_text(encoding="utf-8"))
    assert {"device", "date"} <= set(told["hardware"])
    assert "/root" not in path.read_text(encoding="utf-8")
