"""Progress in a log: where stderr is no terminal, a line now and then instead of a bar.

      LQF: refits without a fold 2/5 folds (40%); rung done in about 40 s, all in about 2 min

Work that takes seconds leaves only its sentences there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from lqf.utils.meter import Meter, NamedMeter
from lqf.utils.patience import Patience
from lqf.utils.text import percent, printable, rough_duration

LINE_SECONDS = 10.0
"""Between two lines, at least."""


@dataclass(frozen=True)
class _Rung:
    """The rung under way: its predicted seconds, and those of all after it."""

    name: str
    seconds: float
    rest: float
    started: float = field(default_factory=lambda: time.monotonic())

    def ends(self, stage: Meter) -> str:
        """When it and the whole fit are expected to be done.

        By the prediction, for a stage does not know what follows it, and a solver seldom needs the most passes that it
        may make. After the predicted time the stage under way is all that is known.
        """
        left = self.started + self.seconds - time.monotonic()
        if left > 0:
            if not self.rest:
                return f"; rung and all done {_in(left)}"
            return f"; rung done {_in(left)}, all {_in(left + self.rest)}"
        if not stage.left:
            return "; rung longer than predicted" + (f", those after it about {_rough(self.rest)}" if self.rest else "")
        return f"{_left(stage)}; rung longer than predicted, all in {_rough(stage.left + self.rest)} or more"


def _left(stage: Meter) -> str:
    return f", about {_rough(stage.left)} left" if stage.left else ""


def _in(seconds: float) -> str:
    return f"in about {_rough(seconds)}"


def _rough(seconds: float) -> str:
    return rough_duration(max(seconds, 1.0))


class ProgressLines:
    """Not a terminal: a log wants the sentences and, every `LINE_SECONDS`, where the work stands; no frames of a bar.

    A line comes when a stage opens, advances or closes: no thread prints into what others write.

    Args:
        stream: where to write.
        patience: seconds in which remarks are kept back.
    """

    def __init__(self, stream: TextIO, patience: float = 0.0) -> None:
        self._stream = stream
        self._open: list[NamedMeter] = []
        self._rung: _Rung | None = None
        self._printed = time.monotonic()
        self._patience = Patience(patience, self.say)

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator[NamedMeter]:
        stage = NamedMeter(total, unit, name=name, show=self._show)
        if not self._open:
            self._patience.begin()
        self._open.append(stage)
        self._show()
        try:
            yield stage
            self._show()
        finally:
            self._open.pop()

    @contextmanager
    def rung(self, name: str, seconds: float, rest: float) -> Iterator[None]:
        self._rung = _Rung(name, seconds, rest)
        try:
            yield
        finally:
            self._rung = None

    def say(self, sentence: str) -> None:
        print(printable(sentence), file=self._stream, flush=True)
        self._printed = time.monotonic()

    def note(self, sentence: str) -> None:
        self._patience.note(sentence)

    def _show(self) -> None:
        """Of nested stages, the innermost."""
        if self._patience.over() and time.monotonic() - self._printed >= LINE_SECONDS:
            self.say(self._line(self._open[-1]))

    def _line(self, stage: NamedMeter) -> str:
        share = f" ({percent(stage.fraction, 0)})" if stage.total else ""
        where = f"{stage.name} {stage.count}{share}"
        if self._rung is None:
            return f"  {where}{_left(stage)}"
        return f"  {self._rung.name}: {where}{self._rung.ends(stage)}"
