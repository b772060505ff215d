"""A world for commands to fail in, and the counts of what was tried, printed at the end."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import small_network
from cli.conftest import paint
from forked import QUICK
from lqf.cli import main

Count = Callable[..., None]


@pytest.fixture
def count(record_property: Callable[[str, object], None]) -> Iterator[Count]:
    """``count("kills of fit", "complete old")``: what was tried, and what came of it."""
    seen: Counter[str] = Counter()

    def add(what: str, result: str = "", n: int = 1) -> None:
        seen[f"{what}\t{result}"] += n

    yield add
    record_property("counts", dict(seen))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    total: dict[str, Counter[str]] = {}
    reports = [report for some in terminalreporter.stats.values() for report in some]
    known = [dict(r.user_properties) for r in reports if getattr(r, "when", "") == "teardown"]
    for key, n in (item for properties in known for item in properties.get("counts", {}).items()):
        what, _, result = key.partition("\t")
        total.setdefault(what, Counter())[result] += n
    if total:
        terminalreporter.section("faults tried")
    for what, results in sorted(total.items()):
        parts = ", ".join(f"{n} {result}" for result, n in sorted(results.items()) if result)
        terminalreporter.write_line(f"{sum(results.values()):6}  {what}{': ' if parts else ''}{parts}")


@pytest.fixture(autouse=True)
def _quick(one_thread: None) -> None:
    """Every command on one thread."""


@pytest.fixture(scope="session")
def _small_network() -> Iterator[None]:
    """`--backbone small` is known."""
    small_network.register()
    yield
    small_network.forget()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, _small_network: None) -> Path:
    """A folder with `train`, `more`, `test`, and `run`, a model of `train` with weight decay 10."""
    folder = tmp_path_factory.mktemp("world")
    for name, per_class, seed in (("train", 5, 0), ("more", 1, 2), ("test", 2, 1)):
        paint(folder / name, per_class, seed)
    for file in sorted((folder / "more").rglob("*.png")):
        file.rename(file.with_name(f"new-{file.name}"))  # an id is a sample's own
    assert main(["fit", str(folder / "train"), "-o", str(folder / "run"), *QUICK]) == 0
    return folder


@pytest.fixture
def place(world: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes another empty folder with a copy of the model."""
    made = []

    def make() -> Path:
        folder = tmp_path / str(len(made))
        made.append(folder)
        folder.mkdir()
        shutil.copytree(world / "run", folder / "run")
        if len(made) > 1:
            shutil.rmtree(made[-2])
        return folder

    return make
