"""Two tiny data sets, a tiny network and a scale of seconds, for the tests of the experiments."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from fits import CPU, convnet, opened, photos
from lqf_paper.command import Order, carry_out
from lqf_paper.experiments import EXPERIMENTS
from lqf_paper.runner.registry import WORKS, Work
from lqf_paper.runner.scale import Scale
from lqf_paper.runner.workspace import Task, Workspace, open_task

TINY = Scale(
    "quick",
    epochs=2,
    least_steps=2,
    size=16,
    pool_channels=3,
    shots=(2, None),
    draws=1,
    steps=2,
    eigenvalues=3,
    curvature_images=6,
    shares=(0.3,),
)
CLASSES = ("blue", "green", "red")
EXACT: dict[str, Any] = {"dtype": "float64", "max_passes": 400, "draws": None}
"""Settings of solves to many digits."""


def small_task(train: Any, test: Any, net: nn.Module) -> Task:
    """Arrays and labels, of training and of test, under a network."""
    workspace = Workspace(net, device=CPU, size=8)
    return Task("small", workspace, *(opened(*part, workspace.preprocess) for part in (train, test)))


def register(monkeypatch: pytest.MonkeyPatch, name: str, work: str, experiment: Any) -> None:
    """An experiment under its name, and its method `work` as the computation of its cells."""
    monkeypatch.setitem(WORKS, work, Work(experiment.work, 1))
    monkeypatch.setitem(EXPERIMENTS, name, experiment)


def folder(where: Path, per_class: int = 5, seed: int = 0) -> Path:
    """`train` and `test` of coloured noise in three classes."""
    photos(where / "train", per_class, seed=2 * seed, classes=CLASSES)
    photos(where / "test", 3, seed=2 * seed + 1, classes=CLASSES)
    return where


@pytest.fixture(autouse=True)
def _libraries_are_no_garbage() -> None:
    """After every cell garbage is collected; what tests before have imported need not be looked through each time."""
    gc.freeze()


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Folders of two data sets."""
    where = tmp_path_factory.mktemp("data")
    return str(folder(where / "one")), str(folder(where / "two", seed=1))


@pytest.fixture
def tiny() -> Scale:
    """The scale of these tests."""
    return TINY


@pytest.fixture
def task(data: tuple[str, str]) -> Task:
    """The first data set under the tiny network."""
    return open_task(data[0], Workspace(convnet().float(), device=CPU, size=16))


@pytest.fixture
def carried_out(data: tuple[str, str], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Run an experiment on both data sets: (name, **changes of the order) -> what the command prints."""

    def go(name: str, **changes: Any) -> dict[str, Any]:
        given = {"backbone": convnet().float(), "scale": TINY, "out": tmp_path, **changes}
        command = f"lqf paper {name}" + (" --finished" if changes.get("finished") else "")
        order = Order(names=(name,), data=data, device=CPU, command=command, **given)
        return carry_out(order)["results"][0]

    return go
