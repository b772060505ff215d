"""Full disks, folders that cannot be written, data that go away, two writers, too little memory."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from PIL import Image

from acts import ACTS, model
from forked import Ended, forked
from lqf import storage

COMMANDS = [name for name in ACTS if name != "save"]


def words(name: str, world: Path) -> list[str]:
    act = ACTS[name]
    assert isinstance(act.words, list)
    return [word.replace("{world}", str(world)) for word in act.words]


def untouched(folder: Path) -> bool:
    """Only the model, or what replaced it, is there."""
    assert model(folder / "run")
    return not [p for p in folder.iterdir() if p.name.startswith(".")]


@pytest.mark.faults
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("room", [0, 100, 3_000, 100_000, 1_000_000])
def test_a_full_disk(name: str, room: int, world: Path, place: Callable[[], Path], count: Callable[..., None]) -> None:
    here = place()
    ended = forked(words(name, world), here, file_bytes=room).check(0, 1)
    count(f"full disk during {name}", "written" if ended.code == 0 else "said")
    assert ended.code == 0 or "the disk took no more" in ended.text
    assert untouched(here)


def test_a_full_disk_is_said_and_the_old_model_stays(world: Path, place: Callable[[], Path]) -> None:
    here = place()
    ended = forked(words("fit", world), here, file_bytes=1000).check(1)
    assert "the disk took no more" in ended.text
    assert untouched(here)


@pytest.mark.faults
@pytest.mark.parametrize("name", COMMANDS)
def test_a_place_that_cannot_be_written(name: str, world: Path, place: Callable[[], Path], count: Callable) -> None:
    here = place()
    line = words(name, world)
    line[line.index("-o") + 1] = f"/proc/{ACTS[name].result}"
    ended = forked(line, here).check(1, 2)
    count(f"read-only place for {name}", "said")
    assert ended.text
    assert untouched(here)


@pytest.mark.faults
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("change", ["removed", "one removed", "changed", "replaced by a folder", "emptied"])
def test_data_that_go_away_while_they_are_read(
    name: str, change: str, world: Path, place: Callable[[], Path], tmp_path: Path, count: Callable[..., None]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(world / "train", data / "train")
    shutil.copytree(world / "test", data / "test")
    shutil.copytree(world / "more", data / "more")
    here = place()
    line = [word.replace(str(world), str(data)) for word in words(name, world)]
    if name in ("audit", "report", "add", "forget"):
        line += ["--train", str(data / "train")]
    seen = 0

    def hear(event: str, given: tuple[object, ...]) -> None:
        nonlocal seen
        if event == "open" and str(given[0]).endswith(".png"):
            seen += 1
            if seen == 4:
                spoil(data, change)

    ended = forked(line, here, also=hear).check(0, 1, 2)
    count(f"data {change} during {name}", "done" if ended.code == 0 else "said")
    assert untouched(here)


def spoil(data: Path, change: str) -> None:
    files = sorted(data.rglob("*.png"))
    for file in files if change == "removed" else files[-1:] + files[:1]:
        file.unlink()
        if change == "changed":
            Image.fromarray(np.zeros((36, 36, 3), np.uint8)).save(file)
        elif change == "replaced by a folder":
            file.mkdir()
        elif change == "emptied":
            file.touch()


@pytest.mark.faults
@pytest.mark.parametrize("writers", [2, 3])
def test_several_writers_of_one_folder(
    writers: int, world: Path, place: Callable[[], Path], count: Callable[..., None]
) -> None:
    here, ended = place(), list[Ended]()
    line = words("fit", world)
    threads = [Thread(target=lambda: ended.append(forked(line, here))) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in ended:
        one.check(0, 1, 2)
    assert any(one.code == 0 for one in ended)
    count("several writers of one folder", "whole", writers)
    assert storage.load(here / "run").settings.body_weight_decay == 20
    assert untouched(here)


@pytest.mark.faults
@pytest.mark.parametrize("name", ["fit", "predict", "audit"])
@pytest.mark.parametrize("megabytes", [1, 4, 16, 40, 100, 200, 400])
def test_a_limit_on_memory(
    name: str, megabytes: int, world: Path, place: Callable[[], Path], count: Callable[..., None]
) -> None:
    here = place()
    ended = forked(words(name, world), here, memory_bytes=megabytes << 20).check(0, 1, 2)
    count(f"memory limit during {name}", "done" if ended.code == 0 else "said")
    assert untouched(here)


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", [2, 5, 9])
def test_signals_while_writing(
    number: int, moment: int, world: Path, place: Callable[[], Path], count: Callable[..., None]
) -> None:
    here, seen = place(), 0

    def hear(event: str, _: tuple[object, ...]) -> None:
        nonlocal seen
        if event in ("os.mkdir", "os.rename", "os.chmod", "lqf.exchange", "shutil.rmtree"):
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), number)

    ended = forked(words("fit", world), here, also=hear).check(0, 128 + number)
    count(f"signal {number} while writing", "done" if ended.code == 0 else "said")
    assert untouched(here)
