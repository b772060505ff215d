"""A cell is known by all its settings: however equal ones are written they are one, a changed default makes another."""

from __future__ import annotations

import inspect
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from lqf.settings import EFFORT, Settings
from lqf.training.finetune import FineTuning
from lqf.utils.progress import SILENT
from lqf_paper.command import earlier_note
from lqf_paper.experiments import EXPERIMENTS
from lqf_paper.methods.catalogue import METHODS, params
from lqf_paper.methods.exact import RidgeHead
from lqf_paper.methods.linear import Linear
from lqf_paper.runner.cells import Cell, Store, key
from lqf_paper.runner.registry import WORKS, Work, defaults, defaults_of
from lqf_paper.runner.run import Run
from lqf_paper.runner.scale import SHORT, Scale
from lqf_paper.runner.workspace import Task


@pytest.fixture
def run(task: Task, tmp_path: Any) -> Run:
    return Run(EXPERIMENTS, [task], SHORT, Store(tmp_path), SILENT)


def fit(run: Run, method: str, settings: dict[str, Any], **more: Any) -> str:
    return key(run.identity(Cell("fit", run.tasks[0].name, {"method": method, "settings": settings, **more})))


def test_equal_settings_are_one_cell_however_they_are_written(run: Run) -> None:
    plain = fit(run, "nlft", {})
    assert fit(run, "nlft", {"loss": "cross_entropy", "alpha": 15, "epochs": 30}, shots=None, seed=0) == plain
    assert fit(run, "nlft", {"loss": "mse"}) != plain
    assert fit(run, "nlft", {}, shots=2) != plain
    assert fit(run, "nlft", {}, seed=1) != plain
    assert fit(run, "lqf", {"kfac": True}) == fit(run, "lqf", {})
    assert fit(run, "lqf", {}) != fit(run, "lqf-no-leaky", {})
    assert fit(run, "lqf-fc", {}) == fit(run, "lqf-fc", {"weight_decay": "auto"})
    assert fit(run, "lqf-ours", {}) == fit(run, "lqf-ours", {"views": "auto", "loo": "none"})


def test_experiments_share_the_cells_of_all_images(run: Run) -> None:
    shared = run.cells("table1").keys() & run.cells("lowshot").keys()
    methods = {run.every()[k].params["method"] for k in shared}
    assert methods >= {"nlft", "lqf-ours", "lqf-fc"}
    assert run.cells("table1").keys() & run.cells("bilinear").keys()
    assert len(run.every()) < sum(len(run.cells(name)) for name in EXPERIMENTS)


@pytest.mark.parametrize(
    ("of", "name", "value", "changed", "same"),
    [
        (FineTuning, "momentum", 0.8, "nlft", "lqf"),
        (FineTuning, "bn", "eval", "b-nlft", "lqf-ours"),
        (Linear, "damping", 2.0, "lqf", "nlft"),
        (Settings, "tol", 1e-3, "lqf-ours", "gaf"),
    ],
)
def test_a_changed_default_makes_another_cell(
    run: Run, monkeypatch: pytest.MonkeyPatch, of: Any, name: str, value: Any, changed: str, same: str
) -> None:
    before = {m: fit(run, m, {}) for m in (changed, same)}
    old = fit(run, changed, {name: value})
    monkeypatch.setattr(of.__dataclass_fields__[name], "default", value)
    assert fit(run, changed, {}) != before[changed]
    assert fit(run, changed, {}) == old
    assert fit(run, same, {}) == before[same]


def test_constants_and_versions_make_other_cells(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*, settings_version: int = 1, **constants: Any) -> str:
        @defaults(FineTuning, version=settings_version)
        def function(task: Task, *, settings: dict[str, Any]) -> dict[str, Any]:
            return {}

        monkeypatch.setitem(WORKS, "it", Work(function, 1, constants))
        return key(run.identity(Cell("it", run.tasks[0].name, {"settings": {}})))

    assert made() == made()
    assert len({made(), made(tol=1e-3), made(tol=1e-2), made(settings_version=2)}) == 4


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_cell_tells_all_its_settings(name: str, task: Task, tiny: Scale) -> None:
    for cell in EXPERIMENTS[name].cells([task], tiny):
        completed = WORKS[cell.work].complete(cell.params)["params"]
        known = METHODS[cell.params["method"]].fit if cell.work == "fit" else WORKS[cell.work].function
        of, fixed = defaults_of(known).of, defaults_of(known).fixed
        assert of is not None or fixed, f"`{cell.work}` does not say whose settings it takes"
        if completed["settings"] is not None:
            counts = lambda f: f.metadata.get("group") != EFFORT and not f.metadata.get("later")  # noqa: E731
            own = {f.name for f in fields(of) if counts(f)} if of else set(fixed)
            own -= set(defaults_of(known).without)
            assert own <= completed["settings"].keys()
        assert set(inspect.signature(WORKS[cell.work].function).parameters) == completed.keys() | {"task"}


def test_the_closed_form_head_is_told_with_its_targets_scale() -> None:
    alpha = inspect.signature(RidgeHead.fit).parameters["alpha"].default
    assert defaults_of(METHODS["lqf-fc"].fit).fixed["alpha"] == alpha


def test_kept_cells_show_their_settings(run: Run) -> None:
    completed = params("lqf", SHORT, 100, {"learning_rate": 0.1, "weight_decay": 1e-5, "augment": "crop"})
    shown = run.identity(Cell("fit", run.tasks[0].name, completed))["params"]
    assert shown["settings"]["momentum"] == Linear.momentum
    assert shown["settings"]["kfac"] is True
    assert shown["settings"]["leaky"] is True
    assert shown["shots"] is None


def lqf_cell(run: Run, method: str = "lqf", **settings: Any) -> Cell:
    return Cell("fit", run.tasks[0].name, {"method": method, "settings": {"learning_rate": 0.01, **settings}})


def test_a_cell_of_before_is_what_it_was(run: Run) -> None:
    before = run.earlier(lqf_cell(run))
    assert before is not None
    settings = before["params"]["settings"]
    assert (settings["precision"], settings["damping"], settings["learning_rate"]) == ("bf16", 1.0, 0.01)
    assert "damping_kind" not in settings
    assert run.earlier(lqf_cell(run, damping=0.1)) is None  # what it names has not changed
    assert run.earlier(lqf_cell(run, damping=1.0)) == before  # which is what it was
    assert run.earlier(lqf_cell(run, "lqf-bf16")) is None
    assert run.earlier(lqf_cell(run, "nlft")) is None


def test_cells_of_before_stand_in_where_a_method_has_none_of_today(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    two = [lqf_cell(run, damping=1.0), lqf_cell(run, learning_rate=0.1), lqf_cell(run)]
    monkeypatch.setitem(EXPERIMENTS, "two", SimpleNamespace(TITLE="", cells=lambda tasks, scale: two))
    record = {"result": {"test_error": 0.5}, "seconds": 1.0, "hardware": {}, "side_by_side": 1}
    before = run.earlier(two[0])
    assert before is not None
    run.store.put(before, record)
    assert run.results("two").done == []
    run.earlier_too = True
    (found,) = run.results("two").done  # once, though two settings of today are that one
    assert (found.cell, found.earlier) == (two[0], True)
    assert "LQF (paper)" in earlier_note(run.results("two"))[0]
    run.store.put(run.identity(two[1]), record)
    (found,) = run.results("two").done  # old and new ones are not mixed
    assert (found.cell, found.earlier) == (two[1], False)
    assert earlier_note(run.results("two")) == []
