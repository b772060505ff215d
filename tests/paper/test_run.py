"""Runs: a cell that fails ends none, several go on side by side, and one command does several experiments."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fits import CPU, convnet
from lqf.errors import Incomplete, LQFError
from lqf.utils.progress import SILENT
from lqf_paper.command import Order, carry_out
from lqf_paper.experiments import EXPERIMENTS
from lqf_paper.runner import run as running
from lqf_paper.runner.cells import Cell, Store
from lqf_paper.runner.claims import Claims
from lqf_paper.runner.experiment import Results, Summary, Table
from lqf_paper.runner.run import Run
from lqf_paper.runner.scale import SHORT, Scale
from lqf_paper.runner.workspace import Task, Workspace
from paper.conftest import TINY, register


class Steps:
    """An experiment of the cells k = first … last, whose work may fail or wait."""

    TITLE = "steps"

    def __init__(self, first: int = 0, last: int = 5) -> None:
        self.range = range(first, last)
        self.calls: list[int] = []
        self.wrong: dict[int, Exception] = {}
        self.wait: Callable[[int], None] = lambda k: None

    def cells(self, tasks: Any, scale: Any) -> list[Cell]:
        return [Cell("step", t.name, {"k": k}) for t in tasks for k in self.range]

    def summarise(self, results: Results) -> Summary:
        rows = tuple((str(d.params["k"]),) for d in results)
        return Summary({}, Table(("k",), rows), lambda figure: figure.text(0, 0, "x"))

    def work(self, task: Task, *, k: int) -> dict[str, Any]:
        self.calls.append(k)
        self.wait(k)
        if k in self.wrong:
            raise self.wrong[k]
        return {"k": k}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps()
    register(monkeypatch, "steps", "step", made)
    return made


def new(steps: Steps, task: Task, where: Path) -> Run:
    return Run({"steps": steps}, [task], SHORT, Store(where), SILENT)


def computed(steps: Steps, task: Task, where: Path) -> Run:
    made = new(steps, task, where)
    made.compute()
    return made


def test_cells_that_fail_are_left_out_and_tried_again_next_time(steps: Steps, task: Task, tmp_path: Path) -> None:
    steps.wrong = {
        0: LQFError("the data do not\nsuit it"),
        2: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
        3: torch.linalg.LinAlgError("eigh did not converge"),
    }
    first = computed(steps, task, tmp_path)
    assert list(first.failed.values()) == [
        "the data do not suit it",
        "the memory did not suffice (OutOfMemoryError: CUDA out of memory. Tried to allocate); "
        "fewer processes side by side leave each more of it",
        "stopped by _LinAlgError: eigh did not converge",
    ]
    assert [d.params["k"] for d in first.results("steps")] == [1, 4]
    assert first.results("steps").counted == "2 of 5 cells"
    assert list(first.results("steps").failed) == ["one: step, k 0", "one: step, k 2", "one: step, k 3"]
    steps.wrong = {}
    again = computed(steps, task, tmp_path)
    assert steps.calls == [0, 1, 2, 3, 4, 0, 2, 3]
    assert not again.failed
    assert not list(tmp_path.glob("*.failed"))
    assert not again.results("steps").failed


def test_what_failed_or_was_killed_comes_last(steps: Steps, task: Task, tmp_path: Path) -> None:
    steps.wrong = {0: ValueError("no")}
    steps.range = range(1)
    computed(steps, task, tmp_path)
    steps.range = range(5)
    made = new(steps, task, tmp_path)
    dead = Claims(tmp_path / ".claims")
    assert dead.take(list(made.every())[1])
    (path,) = (tmp_path / ".claims").glob("*.claim")
    path.write_text(path.read_text().replace(f'"pid": {os.getpid()}', '"pid": 0'))
    os.utime(path, (1.0, 1.0))
    made.compute()
    assert steps.calls == [0, 2, 3, 4, 0, 1]


def test_memory_is_freed_when_nothing_holds_it_any_more(
    steps: Steps, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Large:
        pass

    held: list[weakref.ref[Large]] = []

    def fail(k: int) -> None:
        large = Large()
        held.append(weakref.ref(large))
        raise torch.OutOfMemoryError(f"no room for {large} and {k}")

    def free() -> None:
        assert held[-1]() is None, "the error still holds what the cell had made"

    steps.wait = fail
    monkeypatch.setattr(running, "free_memory", free)
    task.workspace.cache.under("a group").get("large", Large)
    assert len(computed(steps, task, tmp_path).failed) == len(held) == 5
    assert len(task.workspace.cache) == 0


def test_what_failed_in_another_process_is_not_tried_at_once(steps: Steps, task: Task, tmp_path: Path) -> None:
    other = new(steps, task, tmp_path)  # begun before the other one has failed
    steps.wrong = {2: ValueError("no")}
    computed(steps, task, tmp_path)
    other.compute()
    assert steps.calls.count(2) == 1
    assert list(other.failed.values()) == ["stopped by ValueError: no"]


def test_runs_side_by_side_compute_every_cell_once(steps: Steps, task: Task, tmp_path: Path) -> None:
    steps.range = range(12)
    together = threading.Barrier(2, timeout=10)
    steps.wait = lambda k: together.wait() and None if k in (0, 1) else None  # both have a cell before either goes on
    task.fingerprint  # noqa: B018 - made once, before there are threads
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: computed(steps, task, tmp_path), range(2)))
    assert sorted(steps.calls) == list(range(12))
    assert any(not r.elsewhere for r in runs)  # the last one sees all of them
    records = [json.loads(p.read_text()) for p in tmp_path.glob("*.json")]
    assert len(records) == 12
    assert {r["result"]["k"] for r in records if r["side_by_side"] == 2} >= {1}
    assert not list((tmp_path / ".claims").glob("*.claim"))


def nlft(data: str, out: Path, together: Barrier, outcomes: Queue) -> None:
    """The command in a process of its own, begun when the others begin."""
    order = Order(("nlft-mse",), (data,), out, CPU, "lqf", TINY, convnet().float())
    together.wait(timeout=60)
    outcomes.put([r["cells"] for r in carry_out(order)["results"]])


def test_processes_side_by_side_compute_every_cell_once(
    data: tuple[str, str], task: Task, tiny: Scale, tmp_path: Path
) -> None:
    fork = multiprocessing.get_context("fork")
    together, outcomes = fork.Barrier(2), fork.Queue()
    processes = [fork.Process(target=nlft, args=(data[0], tmp_path, together, outcomes)) for _ in range(2)]
    for process in processes:
        process.start()
    outcome = [outcomes.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    assert [process.exitcode for process in processes] == [0, 0]
    n = len(EXPERIMENTS["nlft-mse"].cells([task], tiny))
    assert [n] in outcome  # written by the one that ended last, or by both
    assert all(one in ([], [n]) for one in outcome)
    assert len(list((tmp_path / "cells").glob("*.json"))) == n
    assert len(json.loads((tmp_path / "nlft-mse.json").read_text())["cells"]) == n
    assert f"{n} cells" in (tmp_path / "README.md").read_text()


def test_cells_of_others_are_left_to_them(steps: Steps, data: tuple[str, str], tmp_path: Path) -> None:
    order = Order(("steps",), data[:1], tmp_path, CPU, "lqf paper steps", backbone=convnet().float(), size=16)
    first = carry_out(order)
    assert first["results"][0]["cells"] == 5
    steps.range = range(7)
    missing = new(steps, running.open_tasks(order.data, order.workspace(SILENT))[0], tmp_path / "cells").every()
    last = list(missing)[-1]
    with Claims(tmp_path / "cells" / ".claims") as other:
        assert other.take(last)
        outcome = carry_out(order)
    assert steps.calls == [0, 1, 2, 3, 4, 5]
    assert outcome == {"results": [], "elsewhere": 1, "failed": 0, "left": []}
    assert len(json.loads((tmp_path / "steps.json").read_text())["cells"]) == 5  # written by the one that ends last
    assert carry_out(order)["results"][0]["cells"] == 7


def test_several_experiments_in_one_run(
    steps: Steps, data: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "more", Steps(3, 8))
    steps.wrong = {k: ValueError("no") for k in range(4, 8)}
    command = "lqf paper steps more --data /home/me/one --json"
    order = Order(("steps", "more"), data[:1], tmp_path, CPU, command, backbone=convnet().float(), size=16)
    with pytest.raises(
        Incomplete, match=r"^4 of 8 cells failed, the first because: stopped by ValueError: no; "
    ) as some:
        carry_out(order)
    assert steps.calls == list(range(8))  # those that both need once
    assert [(r["experiment"], r["cells"], r["of"]) for r in some.value.result["results"]] == [
        ("steps", 4, 5),
        ("more", 1, 5),
    ]
    page = (tmp_path / "README.md").read_text()
    assert "`lqf paper steps --data one`" in page
    assert "`lqf paper more --data one`" in page
    assert "**4 of 5 cells: the others are not there" in page
    assert "- Failed: one: step, k 4: stopped by ValueError: no" in page


def test_data_sets_with_all_their_cells(
    steps: Steps, data: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "WHOLE", True, raising=False)
    given = {"backbone": convnet().float(), "size": 16, "data": data, "out": tmp_path, "device": CPU}
    carry_out(Order(("steps",), command="lqf paper steps", **given))
    files = {p: json.loads(p.read_text())["name"] for p in (tmp_path / "cells").glob("*.json")}
    next(p for p, name in files.items() if name == "one").unlink()
    outcome = carry_out(Order(("steps",), command="lqf paper steps", finished=True, **given))
    assert (outcome["results"][0]["cells"], outcome["results"][0]["of"]) == (5, 10)
    assert [d["name"] for d in json.loads((tmp_path / "steps.json").read_text())["data"]] == ["two"]
    next(p for p, name in files.items() if name == "two").unlink()
    assert carry_out(Order(("steps",), command="lqf paper steps", finished=True, **given))["results"] == []


def test_finished_cells_alone(steps: Steps, data: tuple[str, str], tmp_path: Path) -> None:
    given = {"backbone": convnet().float(), "size": 16, "data": data[:1], "out": tmp_path, "device": CPU}
    with pytest.raises(LQFError, match="none of the 5 cells is in"):
        carry_out(Order(("steps",), command="lqf paper steps --finished", finished=True, **given))
    steps.wrong = {2: ValueError("no")}
    with pytest.raises(Incomplete):
        carry_out(Order(("steps",), command="lqf paper steps", **given))
    page = (tmp_path / "README.md").read_text()
    outcome = carry_out(Order(("steps",), command="lqf paper steps --finished", finished=True, **given))
    assert (outcome["results"][0]["cells"], outcome["results"][0]["of"], outcome["failed"]) == (4, 5, 0)
    assert (tmp_path / "README.md").read_text() == page
    assert len(steps.calls) == 5


def test_leaky_methods_may_have_weights_of_their_own(tmp_path: Path) -> None:
    """As `lqf adapt` writes them; the description of a cell names them."""
    plain, file = convnet().float(), tmp_path / "adapted.safetensors"
    other = {n: t + 0.1 if t.is_floating_point() else t for n, t in plain.state_dict().items()}
    save_file(other, file, {"lqf_leaky": "True"})
    bare, workspace = Workspace(plain, device=CPU), Workspace(plain, device=CPU, leaky_weights=str(file))
    torch.testing.assert_close(workspace.network(leaky=True).body.conv.weight, plain.conv.weight + 0.1)
    torch.testing.assert_close(workspace.network(leaky=False).body.conv.weight, plain.conv.weight)
    assert workspace.describe().keys() - bare.describe().keys() == {"leaky_state_sha256"}
