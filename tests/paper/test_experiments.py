"""Every experiment from beginning to end, on two tiny data sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lqf.paper.experiments import EXPERIMENTS


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_it_runs(name: str, carried_out: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    told = carried_out(name)
    written = json.loads((tmp_path / f"{name}.json").read_text())
    assert written["experiment"] == name
    assert len(written["cells"]) == told["cells"] > 0
    assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    page = (tmp_path / "README.md").read_text()
    assert f"## {name}: " in page
    assert all(f"| {cell} |" in page for cell in written["table"]["rows"][0][:1])
