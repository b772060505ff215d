"""How far a long computation is, for a page that asks now and then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from lqf.utils.progress import Progress, Stage


class Watched:
    """A `Progress` that keeps the innermost open stage, and the last sentence.

    Args:
        further: where it is reported as well, until this is None.
    """

    def __init__(self, further: Progress | None = None) -> None:
        self.further, self.sentence = further, ""
        self._lock = threading.Lock()
        self._stages: list[_Stage] = []

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Stage]:
        with nullcontext() if self.further is None else self.further.stage(name, total, unit) as other:
            stage = _Stage(name, total, other)
            with self._lock:
                self._stages.append(stage)
            try:
                yield stage
            finally:
                with self._lock:
                    self._stages.remove(stage)

    def say(self, sentence: str) -> None:
        self.sentence = sentence
        if self.further is not None:
            self.further.say(sentence)

    def note(self, sentence: str) -> None:
        self.sentence = sentence
        if self.further is not None:
            self.further.note(sentence)

    def rung(self, name: str, seconds: float, rest: float) -> AbstractContextManager[None]:
        return nullcontext() if self.further is None else self.further.rung(name, seconds, rest)

    def now(self) -> dict[str, Any]:
        """As JSON values."""
        with self._lock:
            if not self._stages:
                return {"stage": "", "done": 0, "total": None}
            last = self._stages[-1]
            return {"stage": last.name, "done": last.done, "total": last.total}


class _Stage:
    def __init__(self, name: str, total: int | None, other: Stage | None) -> None:
        self.name, self.total, self.other, self.done = name, total, other, 0

    def advance(self, n: int = 1, **info: float | str) -> None:
        self.done += n
        if self.other is not None:
            self.other.advance(n, **info)
