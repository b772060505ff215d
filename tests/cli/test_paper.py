"""`lqf paper`: from folders to a page of results, and again without computing anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cli.conftest import Called
from lqf.paper.scale import QUICK, SCALES

pytest.importorskip("matplotlib")
NETWORK = ("--backbone", "mobilenet_v2", "--weights", "random", "--size", "32")
WORDS = ("--quick", *NETWORK, "--epochs", 1, "--device", "cpu")


def test_an_experiment(lqf: Callable[..., Called], photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCALES, "quick", replace(QUICK, least_steps=1, shots=(None,)))
    words = ("paper", "nlft-mse", "--data", photos, "--out", "results", *WORDS, "--json")
    first = lqf(*words)
    assert first.code == 0, first.err
    assert sorted(p.name for p in Path("results").iterdir()) == ["README.md", "cells", "nlft-mse.json", "nlft-mse.png"]
    assert first.json["cells"] == len(list(Path("results/cells").iterdir()))
    assert f"{first.json['cells']} cells, 0 of them finished before" in first.err
    again = lqf(*words)
    assert f"{first.json['cells']} cells, {first.json['cells']} of them finished before" in again.err
    assert again.json == first.json
    assert "lqf paper nlft-mse --data" in Path("results/README.md").read_text()
    shown = lqf(*words[:-1])
    assert "squared error" in shown.out
    assert "results/README.md" in shown.out


def test_parts_side_by_side_and_results_without_computing(
    lqf: Callable[..., Called], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCALES, "quick", replace(QUICK, least_steps=1, shots=(None,)))
    words = ("paper", "nlft-mse", "--data", photos, "--out", "results", *WORDS)
    first = lqf(*words, "--part", "1/2")
    assert first.code == 0, first.err
    assert "2 of 4 cells finished" in first.out
    assert [p.name for p in Path("results").iterdir()] == ["cells"]
    early = lqf(*words, "--finished")
    assert early.code == 2
    assert "2 of 4 cells are not in" in early.err
    assert "4 of 4 cells finished" in lqf(*words, "--part", "2/2").out
    monkeypatch.setattr("lqf.paper.run.Run._compute", lambda *_: pytest.fail("a cell was computed"))
    shown = lqf(*words, "--finished")
    assert shown.code == 0, shown.err
    assert Path("results/nlft-mse.png").exists()


def test_the_list(lqf: Callable[..., Called]) -> None:
    listed = lqf("paper", "list", "--json")
    assert "table1" in listed.json["experiments"]
    assert "table1" in lqf("paper", "list").out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("tabel1", "--data", "x"), "there is no experiment `tabel1`; there are table1,"),
        (("table1",), "name the data: --data DIR"),
        (("table1", "--data", "x", "--part", "3/2"), "--part is `3/2`; write I/K"),
        (("table1", "--data", "nowhere"), "has no folder `train`"),
    ],
)
def test_what_cannot_be_used(lqf: Callable[..., Called], words: tuple[str, ...], sentence: str) -> None:
    called = lqf("paper", *words, "--device", "cpu")
    assert called.code == 2
    assert sentence in called.err
    assert not Path("results").exists()
