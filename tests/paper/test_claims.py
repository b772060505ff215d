"""Processes side by side: a cell has one of them, the dead ones' cells are taken over, nothing is taken twice."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lqf_paper.runner import claims
from lqf_paper.runner.claims import SILENT_SECONDS, Claims, machine, started
from processes import talking

TAKE_ALL = """
import sys, time
from pathlib import Path
from lqf_paper.runner.claims import Claims
with Claims(Path(sys.argv[1])) as held:
    print("ready", flush=True)
    sys.stdin.readline()
    print(*[k for k in range(300) if held.take(str(k))], flush=True)
    sys.stdin.readline()
"""
linux = pytest.mark.skipif(started(os.getpid()) is None, reason="the system does not tell which processes live")


class Other:
    """A process that takes all cells that it can get when asked to, and keeps them."""

    def __init__(self, folder: Path):
        self.process = talking("-c", TAKE_ALL, str(folder))
        assert self.process.stdout.readline() == "ready\n"

    def say(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def taken(self) -> list[str]:
        return self.process.stdout.readline().split()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def eventually(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not true() and time.monotonic() < until:
        time.sleep(0.01)
    return true()


def test_two_processes_share_the_cells_and_a_killed_one_loses_them(tmp_path: Path) -> None:
    one, two = Other(tmp_path), Other(tmp_path)
    try:
        for process in (one, two):
            process.say()
        first, second = one.taken(), two.taken()
        assert sorted(map(int, first + second)) == list(range(300))
        with Claims(tmp_path) as here:
            assert not here.take("0")
            assert len(here.living()) == 300
            one.process.kill()
            if started(os.getpid()) is not None:
                assert eventually(lambda: started(one.process.pid) is None)  # not waited for, it is dead all the same
                assert sorted(here.living()) == sorted(second)
                assert all(here.take(k) for k in first)
            assert not any(here.take(k) for k in second)
        two.say()
        two.process.wait(10)
        assert not list(tmp_path.glob("*.claim"))  # who ends lets go
    finally:
        one.end()
        two.end()


def write(folder: Path, *, age: float = 0.0, **owner: object) -> Path:
    path = folder / "x.claim"
    claim = {"machine": machine(), "pid": os.getpid(), "started": started(os.getpid()), "host": "there"}
    path.write_text(json.dumps(claim | owner))
    os.utime(path, (time.time() - age,) * 2)
    return path


@linux
def test_a_number_that_another_process_has_now_is_not_its_owner(tmp_path: Path) -> None:
    with Claims(tmp_path) as here:
        write(tmp_path)
        assert not here.take("x")  # another thread of this process, say
        write(tmp_path, started="1")
        assert here.take("x")


def test_claims_of_other_machines_live_as_long_as_they_are_touched(tmp_path: Path) -> None:
    with Claims(tmp_path) as here:
        write(tmp_path, machine="another", age=SILENT_SECONDS / 2)
        assert not here.take("x")
        write(tmp_path, machine="another", age=SILENT_SECONDS + 1)
        assert here.living() == []
        assert here.take("x")


def test_a_claim_that_is_being_written_is_one(tmp_path: Path) -> None:
    with Claims(tmp_path) as here:
        (tmp_path / "x.claim").write_text("")
        assert not here.take("x")


def test_held_claims_are_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "TOUCH_SECONDS", 0.01)
    with Claims(tmp_path) as here:
        assert here.take("x")
        path = tmp_path / "x.claim"
        os.utime(path, (1.0, 1.0))
        assert eventually(lambda: path.stat().st_mtime > 1.0)


def test_a_claim_that_was_taken_over_is_not_released(tmp_path: Path) -> None:
    with Claims(tmp_path) as here:
        assert here.take("x")
        path = write(tmp_path, machine="another")
        here.release("x")
        assert path.exists()


@linux
def test_of_many_that_take_over_a_dead_claim_one_gets_it(tmp_path: Path) -> None:
    held = [Claims(tmp_path) for _ in range(8)]
    for _ in range(20):
        write(tmp_path, started="1")
        with ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda c: c.take("x"), held))
        assert sum(got) == 1
