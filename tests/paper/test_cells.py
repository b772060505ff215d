"""Cells are computed once: kept, found again, continued after an interruption, never mixed up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fits import CPU, convnet
from lqf.errors import LQFError
from lqf.utils.progress import SILENT
from lqf_paper.runner import registry as works
from lqf_paper.runner.cells import Cell, Store, key
from lqf_paper.runner.experiment import Done, Results, Summary, Table, best
from lqf_paper.runner.registry import WORKS, Work
from lqf_paper.runner.run import Run, open_tasks
from lqf_paper.runner.scale import SHORT
from lqf_paper.runner.workspace import Task, Workspace, open_task
from paper.conftest import register


class Count:
    """An experiment of three cells per data set, and how often each was computed."""

    TITLE = "counting"

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.stop_at: int | None = None

    def cells(self, tasks: Any, scale: Any) -> list[Cell]:
        return [Cell("count", t.name, {"k": k}) for t in tasks for k in (0, 1, 2, 2)]

    def summarise(self, results: Results) -> Summary:
        values = {d.cell.data: [e.result["images"] for e in results.where(data=d.cell.data)] for d in results}
        return Summary(values, Table(("data",), (("one",),)), lambda figure: figure.text(0, 0, "x"))

    def work(self, task: Task, *, k: int) -> dict[str, Any]:
        if k == self.stop_at:
            raise KeyboardInterrupt
        self.calls.append(k)
        return {"images": len(task.train) + k, "missing": float("nan")}


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    made = Count()
    register(monkeypatch, "count", "count", made)
    return made


def run(count: Count, task: Task, where: Path) -> Results:
    made = Run({"count": count}, [task], SHORT, Store(where), SILENT)
    made.compute()
    return made.results("count")


def test_a_finished_cell_is_not_computed_again(count: Count, task: Task, tmp_path: Path) -> None:
    first = run(count, task, tmp_path)
    assert count.calls == [0, 1, 2]  # the cell that is named twice once
    assert run(count, task, tmp_path).done == first.done
    assert count.calls == [0, 1, 2]
    assert first.done[0].result == {"images": 15, "missing": None}


def test_an_interrupted_run_goes_on(count: Count, task: Task, tmp_path: Path) -> None:
    count.stop_at = 1
    with pytest.raises(KeyboardInterrupt):
        run(count, task, tmp_path)
    count.stop_at = None
    run(count, task, tmp_path)
    assert count.calls == [0, 1, 2]


def test_other_data_networks_pixels_and_versions_are_other_cells(
    count: Count, task: Task, data: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Run({"count": count}, [task], SHORT, Store(tmp_path), SILENT)
    cell = Cell("count", task.name, {"k": 0})
    here = key(one.identity(cell))
    others = [
        open_task(data[0], Workspace(convnet(seed=1).float(), device=CPU, size=16)),
        open_task(data[0], Workspace(convnet().float(), device=CPU, size=12)),
        replace(open_task(data[1], task.workspace), name=task.name),
        task.shots(2),
        replace(task, workspace=replace(task.workspace, device=torch.device("cuda"))),
    ]
    keys = {key(replace(one, tasks=[other]).identity(cell)) for other in others}
    assert len(keys | {here}) == 6
    monkeypatch.setitem(WORKS, "count", Work(count.work, 2))
    assert key(one.identity(cell)) not in keys | {here}


def test_the_order_of_names_does_not_matter() -> None:
    assert key({"a": 1, "b": {"c": 2, "d": 3}}) == key({"b": {"d": 3, "c": 2}, "a": 1})


def test_damaged_files_are_refused(count: Count, task: Task, tmp_path: Path) -> None:
    run(count, task, tmp_path)
    file = sorted(tmp_path.glob("*.json"))[0]
    whole = file.read_text()
    file.write_text(whole[:20])
    with pytest.raises(LQFError, match="is damaged"):
        run(count, task, tmp_path)
    file.write_text(json.dumps(json.loads(whole) | {"identity": {}}))
    with pytest.raises(LQFError, match="does not hold the cell"):
        run(count, task, tmp_path)


def test_results_pages_keep_other_sections_and_remarks(
    count: Count, carried_out: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    page = tmp_path / "README.md"
    carried_out("count")
    page.write_text(page.read_text().replace("<!-- remarks count -->\n", "<!-- remarks count -->\nIt agrees.\n"))
    other = "<!-- section other -->\n## other: by hand\n<!-- end section other -->"
    page.write_text(page.read_text() + "\n" + other + "\n")
    carried_out("count")
    text = page.read_text()
    assert text.count("## count: counting") == 1
    assert text.count("It agrees.") == 1
    assert other in text
    assert "`lqf paper count`" in text
    carried_out("count")
    assert page.read_text() == text
    page.write_text(text.replace("<!-- end section count -->", ""))
    with pytest.raises(LQFError, match="without its end mark"):
        carried_out("count")


def test_interrupted_the_command_says_how_to_continue(
    count: Count, carried_out: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    count.stop_at = 2
    with pytest.raises(KeyboardInterrupt, match=r"cells.* To continue:\n  lqf paper count"):
        carried_out("count")
    assert len(list((tmp_path / "cells").glob("*.json"))) == 2
    assert not list((tmp_path / "cells").rglob("*.claim"))
    assert not (tmp_path / "count.json").exists()


def test_a_limited_task(data: tuple[str, str]) -> None:
    workspace = Workspace(convnet().float(), device=CPU, size=16, classes=2, per_class=3, test_per_class=2)
    task = open_task(data[0], workspace)
    assert task.classes == ("blue", "green")
    assert (len(task.train), len(task.test)) == (6, 4)
    assert set(task.train.samples.labels) == {0, 1}
    assert all(i.startswith(task.classes[k]) for i, k in zip(task.train.samples.ids, task.train.samples.labels))  # noqa: B905
    few = task.shots(1)
    assert (len(few.train), len(few.test)) == (2, 4)
    assert few.fingerprint != task.fingerprint
    assert task.shots(None) is task


def test_folders_that_cannot_be_used(data: tuple[str, str], tmp_path: Path) -> None:
    workspace = Workspace(convnet().float(), device=CPU, size=16)
    with pytest.raises(LQFError, match="has no folder `train`"):
        open_task(tmp_path, workspace)
    with pytest.raises(LQFError, match="two data sets are called `one`"):
        open_tasks([data[0], data[0]], workspace)


def test_the_best_cell_is_one_that_did_not_diverge(count: Count, task: Task, tmp_path: Path) -> None:
    done = run(count, task, tmp_path).done
    assert best(done, "images") is done[0]
    assert best(done, "missing") is None


def test_work_registers_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "WORKS", {})
    works.work("mine", version=3)(len)  # type: ignore[arg-type]
    assert works.WORKS == {"mine": Work(len, 3)}  # type: ignore[arg-type]


def test_a_page_names_all_machines_and_days() -> None:
    machines = [
        {"device": d, "date": day, "torch": t} for d, day, t in (("A", "2026-01-02", "1"), ("B", "2026-01-01", "2"))
    ]
    done = [
        Done(Cell("count", "x", {"k": k}), {}, 1.0, h) for k, h in enumerate((machines[0], machines[1], machines[0]))
    ]
    assert Results([], SHORT, done).hardware() == {"device": "A, B", "date": "2026-01-01 to 2026-01-02", "torch": "1"}
    assert Results([], SHORT, done[1:2]).hardware() == machines[1]
