"""A `Progress` that remembers what it was given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Recorder:
    """Remembers sentences, steps, rungs, and stages that have ended with how far they came."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.stages: list[tuple[str, int | None, int]] = []
        self.steps: list[dict[str, float | str]] = []
        self.rungs: list[tuple[str, float, float]] = []

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Counter]:
        counter = Counter(self, name)
        yield counter
        self.stages.append((name, total, counter.n))

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def note(self, sentence: str) -> None:
        self.said.append(sentence)

    @contextmanager
    def rung(self, name: str, seconds: float, rest: float) -> Iterator[None]:
        self.rungs.append((name, seconds, rest))
        yield

    def advanced(self, stage: str, info: dict[str, float | str]) -> None:
        """Called at every step of every stage."""
        self.steps.append(info)


class Counter:
    """One stage under way."""

    def __init__(self, recorder: Recorder, name: str):
        self.recorder, self.name, self.n = recorder, name, 0

    def advance(self, n: int = 1, **info: float | str) -> None:
        self.n += n
        self.recorder.advanced(self.name, info)


class Interrupting(Recorder):
    """Raises Ctrl-C when a stage called ``name`` has advanced so many times."""

    def __init__(self, name: str, at: int):
        super().__init__()
        self.name, self.left = name, at

    def advanced(self, stage: str, info: dict[str, float | str]) -> None:
        super().advanced(stage, info)
        self.left -= stage == self.name
        if self.left == 0:
            raise KeyboardInterrupt
