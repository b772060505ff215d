"""kill -9 at placed and random moments: complete old, complete new, or resumable; resuming gives the same optimum."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from acts import ACTS, model
from forked import forked
from lqf import storage
from lqf.utils.rooms import recover


class Killed:
    """One command, killed again and again in fresh folders."""

    def __init__(self, name: str, world: Path, place: Callable[[], Path], count: Callable[..., None]):
        self.name, self.act, self.place, self.count = name, ACTS[name], place, count
        words = self.act.words
        self.work = words if callable(words) else [word.replace("{world}", str(world)) for word in words]
        self.here = self._ready()
        self.old = self.act.state(self.here / self.act.result)
        began = time.monotonic()
        ended = forked(self.work, self.here).check(0)
        self.seconds, self.moments = time.monotonic() - began, ended.moments
        self.new = self.act.state(self.here / self.act.result)
        self.optimum = self._answer() if self.act.state is model else None

    def _ready(self) -> Path:
        """A folder in which the result of an earlier call is there already."""
        here = self.place()
        if self.act.result != "run":
            forked(self.work, here).check(0)
        return here

    def _answer(self) -> list[float]:
        fitted = storage.load(self.here / self.act.result)
        return [*fitted.head.flatten().tolist(), *fitted.delta.flatten().tolist()]

    def again(self, **how: float) -> bool:
        """Kill it, look at what is there, and call it again; whether it ended before it was killed."""
        here = self.here = self._ready()
        ended = forked(self.work, here, **how)
        recover(here / self.act.result)
        state = self.act.state(here / self.act.result)
        assert state in (self.old, self.new)
        checkpoint = (here / "run.checkpoint").exists()
        words = "not reached" if ended.code == 0 else "complete new" if state != self.old else "complete old"
        self.count(f"kill -9 of {self.name}", "resumable" if checkpoint else words)
        if checkpoint or state == self.old:
            resume = ["--resume"] if self.name == "fit" and checkpoint else []
            forked(self.work if callable(self.work) else [*self.work, *resume], here).check(0)
        assert self.act.state(here / self.act.result) == self.new
        hidden = [p.name for p in here.iterdir() if p.name.startswith(".") or p.name.endswith(".checkpoint")]
        assert not hidden
        if self.optimum is not None:
            assert self._answer() == pytest.approx(self.optimum, abs=1e-3 * max(map(abs, self.optimum)))
        return ended.code == 0


@pytest.mark.parametrize("name", ["save", "fit"])
def test_a_placed_kill(name: str, world: Path, place: Callable[[], Path], count: Callable[..., None]) -> None:
    killed = Killed(name, world, place, count)
    killed.again(die_at=killed.moments - 2)


@pytest.mark.faults
@pytest.mark.parametrize("name", ACTS)
def test_every_placed_kill(name: str, world: Path, place: Callable[[], Path], count: Callable[..., None]) -> None:
    killed = Killed(name, world, place, count)
    assert killed.moments > 3
    for moment in range(1, killed.moments + 1):
        killed.again(die_at=moment)


@pytest.mark.faults
@pytest.mark.parametrize("name", ACTS)
def test_random_kills(name: str, world: Path, place: Callable[[], Path], count: Callable[..., None]) -> None:
    killed, draw = Killed(name, world, place, count), random.Random(0)
    for _ in range(50):
        moment = draw.uniform(0, killed.seconds)
        if killed.again(after=moment):
            killed.seconds = moment  # the first call took longer than later ones
