"""How far a long computation is, for a page that asks now and then.

One thread may work behind the others: it is reported by itself, and calls back at every step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
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
        self._behind: int | None = None
        self._step: Callable[[], None] = lambda: None

    @contextmanager
    def behind(self, step: Callable[[], None]) -> Iterator[None]:
        """A block in which this thread works behind the others; ``step`` is called whenever it advances."""
        self._behind, self._step = threading.get_ident(), step
        try:
            yield
        finally:
            self._behind = None

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Stage]:
        with nullcontext() if self.further is None else self.further.stage(name, total, unit) as other:
            behind = threading.get_ident() == self._behind
            stage = _Stage(name, total, other, self._step if behind else None)
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

    def now(self, *, behind: bool = False) -> dict[str, Any]:
        """Of the questions, or of what is done behind them, as JSON values."""
        with self._lock:
            stages = [s for s in self._stages if (s.step is not None) == behind]
        if not stages:
            return {"stage": "", "done": 0, "total": None}
        return {"stage": stages[-1].name, "done": stages[-1].done, "total": stages[-1].total}


class _Stage:
    def __init__(self, name: str, total: int | None, other: Stage | None, step: Callable[[], None] | None) -> None:
        self.name, self.total, self.other, self.step, self.done = name, total, other, step, 0

    def advance(self, n: int = 1, **info: float | str) -> None:
        self.done += n
        if self.other is not None:
            self.other.advance(n, **info)
        if self.step is not None:
            self.step()
