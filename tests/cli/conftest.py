"""Coloured noise in three classes, a way to call the command line, and a fitted model for tests that only use one."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from lqf.cli import main

TINY = ["--backbone", "mobilenet_v2", "--weights", "random", "--size", "32", "--device", "cpu"]
HEAD = [*TINY, "--solver", "head"]
CLASSES = ("blue", "green", "red")


@dataclass(frozen=True)
class Called:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        assert self.out.count("\n") == 1, self.out  # one object, nothing else
        return json.loads(self.out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))


def paint(folder: Path, per_class: int, seed: int, classes: tuple[str, ...] = CLASSES) -> Path:
    rng = np.random.default_rng(seed)
    for k, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            pixels = rng.integers(0, 120, (40, 40, 3)) + 90 * (np.arange(3) == 2 - k % 3)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i}.png")
    return folder


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train` (3 × 6) and `test` (3 × 4)."""
    folder = tmp_path_factory.mktemp("photos")
    paint(folder / "train", 6, seed=0)
    paint(folder / "test", 4, seed=1)
    return folder


@pytest.fixture(scope="session")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model on `photos/train`."""
    out = tmp_path_factory.mktemp("models") / "run"
    assert main(["fit", str(photos / "train"), "-o", str(out), *HEAD]) == 0
    return out


@pytest.fixture(autouse=True)
def _one_thread(_same_start_for_every_test: None) -> None:
    """Images of 32 pixels leave a second thread nothing to do but wait."""
    torch.set_num_threads(1)


@pytest.fixture
def lqf(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Called]:
    """Call `main` in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    capsys.readouterr()  # what fixtures printed

    def call(*words: object) -> Called:
        code = main([str(word) for word in words])
        return Called(code, *capsys.readouterr())

    return call
