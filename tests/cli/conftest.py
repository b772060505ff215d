"""Coloured noise in three classes, a way to call the command line, and a fitted model for tests that only use one."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import small_network
from fits import photos as noise
from lqf.cli import main

TINY = ["--backbone", small_network.NAME, "--weights", "random", "--size", "32", "--device", "cpu"]
HEAD = [*TINY, "--solver", "head"]
LAST = ["--linearize", "final", "--weight-decay", "3", "--body-weight-decay", "3"]  # a quick problem
SOLVE = [*TINY, *LAST, "--solver", "pcg", "--tol", "1e-5", "--max-passes", "100"]
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
    """A folder CLASS/*.png of coloured noise."""
    return noise(folder, per_class, seed=seed, classes=classes)


def spoil(good: Path) -> None:
    """Two files that are no images: `letter.jpg` is text, `cut.png` ends too early."""
    Path("letter.jpg").write_text("Dear all,")
    Path("cut.png").write_bytes(good.read_bytes()[:300])


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train` (3 × 6) and `test` (3 × 4)."""
    folder = tmp_path_factory.mktemp("photos")
    paint(folder / "train", 6, seed=0)
    paint(folder / "test", 4, seed=1)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _small_network() -> Iterator[None]:
    """`--backbone small` is known."""
    small_network.register()
    yield
    small_network.forget()


@pytest.fixture(scope="session")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model on `photos/train`."""
    out = tmp_path_factory.mktemp("models") / "run"
    assert main(["fit", str(photos / "train"), "-o", str(out), *HEAD]) == 0
    return out


@pytest.fixture(autouse=True)
def _quick(one_thread: None) -> None:
    """Every command on one thread."""


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
