"""`lqf paper`: from folders to a page of results, and again without computing anything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Called
from lqf.cli.app import main
from lqf.errors import LQFError
from lqf_paper import cli as paper
from lqf_paper.runner.registry import WORKS
from lqf_paper.runner.scale import QUICK, SCALES
from lqf_paper.runner.workspace import Task

pytest.importorskip("matplotlib")
NETWORK = ("--backbone", "mobilenet_v2", "--weights", "random", "--size", "32")
WORDS = ("--quick", *NETWORK, "--epochs", 1, "--device", "cpu")


def test_an_experiment(lqf: Callable[..., Called], photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCALES, "quick", replace(QUICK, least_steps=1, shots=(None,)))
    words = ("paper", "nlft-mse", "--data", photos, "--out", "results", *WORDS, "--json")
    first = lqf(*words)
    assert first.code == 0, first.err
    assert sorted(p.name for p in Path("results").iterdir()) == ["README.md", "cells", "nlft-mse.json", "nlft-mse.png"]
    n = first.json["results"][0]["cells"]
    assert n == len(list(Path("results/cells").glob("*.json")))
    assert f"{n} cells, 0 of them finished before" in first.err
    again = lqf(*words)
    assert f"{n} cells, {n} of them finished before" in again.err
    assert again.json == first.json
    assert "lqf paper nlft-mse --data" in Path("results/README.md").read_text()
    shown = lqf(*words[:-1])
    assert "squared error" in shown.out
    assert "results/README.md" in shown.out


def test_several_experiments_of_which_some_cells_fail(
    lqf: Callable[..., Called], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCALES, "quick", replace(QUICK, least_steps=1, shots=(None,)))

    def fit(task: Task, *, method: str, settings: dict[str, Any], seed: int = 0, shots: int | None = None) -> Any:
        if method == "nlft-mse":
            raise LQFError("squared errors are too large")
        return {"test_error": 0.1, "diverged": False, "n": len(task.train)}

    monkeypatch.setitem(WORKS, "fit", replace(WORKS["fit"], function=fit))
    words = ("paper", "nlft-mse", "robustness", "--data", photos, "--out", "results", *WORDS)
    first = lqf(*words)
    assert first.code == 1
    assert "failed: squared errors are too large" in first.err
    assert "2 of 8 cells failed, the first because: squared errors are too large; the same command" in first.err
    assert "2 of 4" in first.out
    assert "robustness" in first.out
    assert "lqf paper robustness --data" in Path("results/README.md").read_text()
    assert lqf(*words, "--json").json["error"].startswith("2 of 8 cells failed")
    monkeypatch.setattr("lqf_paper.runner.run.Run._compute", lambda *_: pytest.fail("a cell was computed"))
    shown = lqf(*words, "--finished")
    assert shown.code == 0, shown.err
    assert "2 of 8 cells are missing; the results are those of the others" in shown.err


def test_the_list(lqf: Callable[..., Called]) -> None:
    listed = lqf("paper", "list", "--json")
    assert "table1" in listed.json["experiments"]
    assert "table1" in lqf("paper", "list").out


def test_the_library_stands_without_the_paper(
    lqf: Callable[..., Called], photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paper", "list"], more={}) == 2
    assert capsys.readouterr().err == "lqf: `lqf paper` is not installed: run `pip install 'lqf-torch[paper]'`\n"
    assert main(["paprika"], more={}) == 2
    assert "invalid choice: 'paprika'" in capsys.readouterr().err
    for package in ("matplotlib", "scipy"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)  # importing it fails
            called = lqf("paper", "table1", "--data", photos, "--device", "cpu")
            assert called.code == 2
            what = f"{package} is needed for `lqf paper` and is not installed"
            assert called.err == f"lqf: {what}: run `pip install 'lqf-torch[paper]'`\n"
            assert "table1" in lqf("paper", "list").out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("tabel1", "--data", "x"), "there is no experiment `tabel1`; there are table1,"),
        (("table1",), "name the data: --data DIR"),
        (("table1", "bilinaer", "--data", "x"), "there is no experiment `bilinaer`"),
        (("table1", "--data", "nowhere"), "has no folder `train`"),
    ],
)
def test_what_cannot_be_used(lqf: Callable[..., Called], words: tuple[str, ...], sentence: str) -> None:
    called = lqf("paper", *words, "--device", "cpu")
    assert called.code == 2
    assert sentence in called.err
    assert not Path("results").exists()


def test_a_table_wider_than_the_terminal_goes_on_below_behind_the_names_of_its_rows() -> None:
    names = ("data", "images", *(f"a method called {k}" for k in range(4)))
    rows = [("birds", "5", "1", "2", "3", "4"), ("flowers", "5", "5", "6", "7", "8")]
    table = {"columns": names, "rows": rows, "keys": 2}
    result = {"experiment": "lowshot", "cells": 3, "of": 3, "seconds": 1.0, "files": ["out/a.png"], "table": table}
    lines = paper.show({"results": [result], "elsewhere": 0, "failed": 0}).splitlines()
    assert max(map(len, lines)) <= 80
    shown = [line.split() for line in lines]
    assert ["birds", "5", "1", "2", "3"] in shown
    assert ["birds", "5", "4"] in shown
    assert sum(line.startswith("data     images  a method called") for line in lines) == 2
