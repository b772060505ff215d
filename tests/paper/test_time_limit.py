"""Runs in limited time: none is begun that may not end, what is left is told, and a killed one leaves no half."""

from __future__ import annotations

import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fits import CPU, convnet
from lqf.cli.app import main
from lqf.utils.progress import SILENT
from lqf_paper import cli, command
from lqf_paper.command import Order, carry_out
from lqf_paper.experiments import EXPERIMENTS
from lqf_paper.methods.catalogue import params
from lqf_paper.runner import run as running
from lqf_paper.runner.cells import Cell, Store
from lqf_paper.runner.expected import Expected
from lqf_paper.runner.experiment import Results, Summary, Table
from lqf_paper.runner.run import Run
from lqf_paper.runner.scale import SHORT, Scale
from lqf_paper.runner.workspace import Task
from paper.conftest import register
from processes import talking

DAY = 86400.0


class Search:
    """Cells of methods, which may take long; beyond the search, a repeat of every method's best."""

    TITLE = "search"

    def __init__(self) -> None:
        self.settings = {"slow": (1, 2), "quick": (1,)}
        self.calls: list[str] = []
        self.wait: Any = lambda name: None

    def cells(self, tasks: Any, scale: Any) -> list[Cell]:
        pairs = [(m, k) for m, ks in self.settings.items() for k in ks]
        return [Cell("step", t.name, {"method": m, "k": k}) for t in tasks for m, k in pairs]

    def further(self, results: Results) -> list[Cell]:
        best = {d.params["method"]: d.params["k"] for d in results.done}
        return [Cell("step", results.tasks[0].name, {"method": m, "k": k, "seed": 1}) for m, k in best.items()]

    def summarise(self, results: Results) -> Summary:
        return Summary({}, Table(("k",), tuple((str(d.params["k"]),) for d in results)))

    def work(self, task: Task, *, method: str, k: int, seed: int = 0) -> dict[str, Any]:
        name = f"{method} {k} {seed}"
        self.calls.append(name)
        self.wait(name)
        return {"k": k}


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Search:
    made = Search()
    register(monkeypatch, "search", "step", made)
    return made


def new(search: Search, task: Task, where: Path, **more: Any) -> Run:
    return Run({"search": search}, [task], SHORT, Store(where), SILENT, **more)


def measured(run: Run, cell: Cell, seconds: float, side_by_side: int = 1) -> None:
    record = {"name": cell.data, "result": {}, "seconds": seconds, "hardware": {}, "side_by_side": side_by_side}
    run.store.put(run.identity(cell), record)


def test_a_cell_takes_what_those_most_like_it_took(task: Task, tmp_path: Path) -> None:
    run = Run({}, [task], SHORT, Store(tmp_path), SILENT)

    def cell(method: str = "nlft", **settings: Any) -> Cell:
        return Cell("fit", task.name, {"method": method, "settings": {"epochs": 10, **settings}, "seed": 0})

    expected = Expected(run.store, {task.fingerprint: len(task.train)})

    def seconds(c: Cell, processes: int = 1, **changes: Any) -> float | None:
        return expected.seconds({**run.identity(c), **changes}, processes)

    assert seconds(cell()) is None
    measured(run, cell(learning_rate=0.1), 4.0)
    measured(run, cell(learning_rate=0.2), 12.0, side_by_side=4)
    assert seconds(cell(learning_rate=0.3, weight_decay=0.1)) == 5.0  # (4 + 6)/2; rates and strengths cost nothing
    assert seconds(cell(learning_rate=0.3), processes=4) == 14.0  # (16 + 12)/2: side by side every one is slower
    assert seconds(cell(epochs=40)) == 20.0
    few = Cell("fit", task.name, {"method": "nlft", "settings": {"epochs": 400}, "shots": 1})
    assert seconds(few) == 5.0  # as many steps, on few images
    assert seconds(cell("nlft-mse")) == 5.0  # another method, where there is none of its own
    measured(run, cell(augment="resized"), 50.0)
    assert seconds(cell(augment="resized", learning_rate=3.0)) == 50.0
    expected.images["other"] = 3 * len(task.train)
    assert seconds(cell(), data="other") == 15.0
    assert seconds(cell(), lab={**run.identity(cell())["lab"], "device": "cuda"}) is None


def test_no_cell_is_begun_for_which_there_is_no_time(search: Search, task: Task, tmp_path: Path) -> None:
    before = new(search, task, tmp_path)
    for method, seconds in (("slow", DAY), ("quick", 1.0)):
        measured(before, Cell("step", task.name, {"method": method, "k": 0}), seconds)
    run = new(search, task, tmp_path, until=time.monotonic() + DAY / 2)
    run.compute()
    assert search.calls == ["quick 1 0", "quick 1 1"]  # its search has ended, and it is repeated
    assert sorted(map(str, run.late.values())) == ["one: slow, k 1", "one: slow, k 2"]
    assert [run.seconds(c) for c in run.late.values()] == [DAY, DAY]
    assert not run.elsewhere
    run = new(search, task, tmp_path, until=time.monotonic() - 1.0)
    run.compute()
    assert len(search.calls) == 2
    run = new(search, task, tmp_path)
    run.compute()
    assert search.calls[2:] == ["slow 1 0", "slow 2 0", "slow 2 1"]
    assert not run.late


def test_methods_come_in_the_order_they_are_given(search: Search, task: Task, tmp_path: Path) -> None:
    new(search, task, tmp_path, methods=("quick", "slow")).compute()
    assert search.calls == ["quick 1 0", "quick 1 1", "slow 1 0", "slow 2 0", "slow 2 1"]  # repeats of each at once


def test_only_the_first_settings_of_every_search(search: Search, task: Task, tmp_path: Path) -> None:
    """And what is best among them is repeated."""
    run = new(search, task, tmp_path, first=1)
    assert [str(c) for c in run.left().values()] == ["one: slow, k 1", "one: quick, k 1"]
    run.compute()
    assert search.calls == ["slow 1 0", "quick 1 0", "slow 1 1", "quick 1 1"]
    assert run.missing() == 1
    new(search, task, tmp_path).compute()
    assert search.calls[4:] == ["slow 2 0", "slow 2 1"]


def test_a_process_with_a_limit_waits_for_the_cells_of_others(
    search: Search, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And repeats the winner of a search that another process ends."""
    monkeypatch.setattr(running, "POLL_SECONDS", 0.01)
    search.settings = {"slow": (1, 2)}
    begun, go = threading.Event(), threading.Event()

    def wait(name: str) -> None:
        if name == "slow 1 0":
            begun.set()
            assert go.wait(20)
        if name == "slow 2 0":
            assert begun.wait(20)
            threading.Timer(0.2, go.set).start()

    search.wait = wait
    task.fingerprint  # noqa: B018 - made once, before there are threads
    runs = [new(search, task, tmp_path, until=time.monotonic() + 60) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda run: run.compute(), runs))
    assert sorted(search.calls) == ["slow 1 0", "slow 2 0", "slow 2 1"]
    assert not any(run.elsewhere or run.late for run in runs)


def test_what_is_left_is_told_without_computing(search: Search, data: tuple[str, str], tmp_path: Path) -> None:
    given = {"backbone": convnet().float(), "size": 16, "data": data[:1], "out": tmp_path, "device": CPU}
    order = Order(("search",), command="lqf paper search", methods=("quick",), cells_only=True, **given)
    assert carry_out(order) == {"cells": 2, "elsewhere": 0, "failed": 0, "left": []}
    outcome = carry_out(Order(("search",), command="lqf paper search", left=True, **given))
    assert search.calls == ["quick 1 0", "quick 1 1"]
    assert outcome["cells"] == 2
    assert [(cell["cell"], cell["seconds"] is not None) for cell in outcome["left"]] == [
        ("one: slow, k 1", True),
        ("one: slow, k 2", True),
    ]
    shown = cli.show({**outcome, "left": [{"cell": "one: slow, k 1", "seconds": 61.2}, {"cell": "x", "seconds": None}]})
    assert shown.splitlines() == [
        "   61 s  one: slow, k 1",
        "      ?  x",
        "2 cells left, 1 min 01 s for 1 of them",
        "2 cells there; --finished writes the results",
    ]


def test_the_command_takes_a_time_limit(
    data: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orders: list[Order] = []

    def taken(order: Order, progress: Any) -> dict[str, Any]:
        orders.append(order)
        return {"cells": 0, "left": []}

    monkeypatch.setattr(command, "carry_out", taken)
    words = ["paper", "table1", "--data", data[0], "--out", str(tmp_path / "out"), "--time-limit"]
    assert main([*words, "60"], more={"paper": cli}) == 0
    assert main([*words, "60", "--left"], more={"paper": cli}) == 0
    assert main([*words, "0"], more={"paper": cli}) == 2
    assert [(order.time_limit, order.left) for order in orders] == [(60, False), (60, True)]
    assert "--time-limit" in capsys.readouterr().err


KILLED = """
import sys
from pathlib import Path
from fits import CPU, convnet
from lqf_paper.command import Order, carry_out
from lqf_paper.runner.cells import Store
from paper.conftest import TINY
put, done = Store.put, []
def slow(self, identity, record):
    if done:
        print("computed", flush=True)
        sys.stdin.readline()
    done.append(put(self, identity, record))
Store.put = slow
carry_out(Order(("nlft-mse",), (sys.argv[1],), Path(sys.argv[2]), CPU, "lqf", TINY, convnet().float(), cells_only=True))
"""


def test_a_killed_process_leaves_whole_cells_alone(
    data: tuple[str, str], task: Task, tiny: Scale, tmp_path: Path
) -> None:
    killed = talking("-c", KILLED, data[0], str(tmp_path))
    assert killed.stdout is not None
    assert killed.stdout.readline() == "computed\n"
    killed.send_signal(signal.SIGTERM)  # what `timeout` sends
    killed.wait(20)
    cells = tmp_path / "cells"
    (first,) = cells.glob("*.json")
    before = first.read_text()
    assert "seconds" in json.loads(before)
    assert len(list((cells / ".claims").glob("*.claim"))) == 1
    given = {"backbone": convnet().float(), "data": data[:1], "out": tmp_path, "device": CPU, "scale": tiny}
    outcome = carry_out(Order(("nlft-mse",), command="lqf paper nlft-mse", cells_only=True, **given))
    assert outcome["cells"] == len(EXPERIMENTS["nlft-mse"].cells([task], tiny))
    assert first.read_text() == before
    assert not list((cells / ".claims").glob("*.claim"))


def test_rates_of_a_search_are_known_to_cost_the_same(task: Task, tmp_path: Path) -> None:
    """By the parameters of real cells, as an experiment writes them."""
    run = Run({}, [task], SHORT, Store(tmp_path), SILENT)
    first, other = (
        Cell("fit", task.name, params("lqf", SHORT, len(task.train), s))
        for s in ({"learning_rate": 0.1}, {"learning_rate": 0.01, "damping": 0.1})
    )
    measured(run, first, 7.0)
    assert run.seconds(other) == 7.0
