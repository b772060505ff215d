"""Progress without rich: one line of text that is rewritten in place, in a terminal or elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TextIO

from lqf.utils.meter import NamedMeter
from lqf.utils.patience import Patience
from lqf.utils.text import printable

_CLEAR = "\x1b[K"  # a terminal's "erase to the end of the line"


class Line(Protocol):
    """One line that is rewritten in place, somewhere."""

    def rewrite(self, text: str) -> None:
        """Show this in place of what was there."""
        ...

    def leave(self) -> None:
        """What is there stays; the next line is another one."""
        ...

    def say(self, sentence: str) -> None:
        """Print a line for good, apart from the one that is rewritten."""
        ...


@dataclass
class TerminalLine:
    """A terminal's last line."""

    stream: TextIO

    def rewrite(self, text: str) -> None:
        columns = shutil.get_terminal_size().columns
        self._write(f"\r{_CLEAR}{text[: columns - 1]}")  # a wrapped line cannot be rewritten

    def leave(self) -> None:
        self._write("\n")

    def say(self, sentence: str) -> None:
        self._write(f"\r{_CLEAR}{printable(sentence)}\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


class PlainText:
    """What bars show, without rich: one line, rewritten in place; of nested stages the innermost is shown.

    Args:
        line: where.
        patience: seconds in which nothing is shown.
    """

    def __init__(self, line: Line, patience: float = 0.0) -> None:
        self._line = line
        self._open: list[NamedMeter] = []
        self._drawn = False
        self._patience = Patience(patience, self.say)

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator[NamedMeter]:
        stage = NamedMeter(total, unit, name=name, show=self._draw)
        if not self._open:
            self._patience.begin()
        self._open.append(stage)
        self._draw()
        try:
            yield stage
        finally:
            stage.end()
            self._draw()
            self._open.pop()
            self._draw() if self._open else self._end()

    def say(self, sentence: str) -> None:
        self._line.say(sentence)
        self._draw()

    def note(self, sentence: str) -> None:
        self._patience.note(sentence)

    def rung(self, name: str, seconds: float, rest: float) -> AbstractContextManager[None]:
        return nullcontext()

    def _draw(self) -> None:
        if self._open and self._patience.over():
            stage = self._open[-1]
            bar = "" if stage.total is None else "[" + ("#" * round(16 * stage.fraction)).ljust(16, ".") + "] "
            self._drawn = True
            self._line.rewrite(f"{stage.name} {bar}{stage}")

    def _end(self) -> None:
        if self._drawn:
            self._line.leave()
        self._drawn = False
