"""Progress on stderr: how far, how exact so far (the residual), and how long still.

Stdout belongs to results (`--json` prints one object there and nothing else), so nothing here ever writes to it.
Library code takes a `Progress` argument that defaults to `SILENT`; the command line passes `terminal_progress()`.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


class Stage(Protocol):
    """One stage of work under way."""

    def advance(self, n: int = 1, **info: float | str) -> None:
        """Count `n` more units done; `info` (say ``residual=1e-2``) is shown beside the bar."""
        ...


class Progress(Protocol):
    """Where a long computation says how far it is."""

    def stage(self, name: str, total: int | None = None, unit: str = "") -> AbstractContextManager[Stage]:
        """Open a stage of `total` units (None: unknown); it closes with the ``with`` block. Stages may nest."""
        ...

    def say(self, sentence: str) -> None:
        """Print one line that stays on the screen."""
        ...


class _Idle:
    def advance(self, n: int = 1, **info: float | str) -> None:
        pass


class _Silent:
    def stage(self, name: str, total: int | None = None, unit: str = "") -> AbstractContextManager[Stage]:
        return nullcontext(_Idle())

    def say(self, sentence: str) -> None:
        pass


SILENT: Progress = _Silent()
_REDRAW_SECONDS = 0.1
_CLEAR = "\x1b[K"  # a terminal's "erase to the end of the line"


def terminal_progress() -> Progress:
    """Bars on stderr where it is a terminal (rich if installed, plain text if not); elsewhere only the `say` lines."""
    if not sys.stderr.isatty():
        return _Lines(sys.stderr)
    try:
        from rich.console import Console
    except ImportError:
        return _Plain(sys.stderr)
    return _Rich(Console(stderr=True))


class _Lines(_Silent):
    """Not a terminal: a log wants the sentences, not the frames of a bar."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, sentence: str) -> None:
        print(sentence, file=self._stream, flush=True)


@dataclass
class _Meter:
    """What stands beside a bar; `str()` of it is always current, so a bar that is redrawn shows the time running."""

    total: int | None
    unit: str
    done: int = 0
    info: dict[str, float | str] = field(default_factory=dict)
    started: float = field(default_factory=lambda: time.monotonic())
    drawn: float = -1.0
    seconds: float | None = None  # set when the stage has ended

    def advance(self, n: int = 1, **info: float | str) -> None:
        self.done += n
        self.info.update(info)

    def due(self) -> bool:
        """Is it time to draw again? At most ten times a second, so that a bar costs nothing."""
        if time.monotonic() - self.drawn < _REDRAW_SECONDS:
            return False
        self.drawn = time.monotonic()
        return True

    def end(self) -> None:
        self.seconds = time.monotonic() - self.started

    @property
    def fraction(self) -> float:
        return min(self.done / self.total, 1.0) if self.total else 0.0

    def __str__(self) -> str:
        count = f"{self.done}" if self.total is None else f"{self.done}/{self.total}"
        shown = [f"{k} {v:.2g}" if isinstance(v, float) else f"{k} {v}" for k, v in self.info.items()]
        return "  ".join([f"{count} {self.unit}".rstrip(), *shown, self._time()])

    def _time(self) -> str:
        if self.seconds is not None:
            return _clock(self.seconds)
        elapsed = time.monotonic() - self.started
        if not self.total:
            return _clock(elapsed)
        # the mean rate so far, not a recent one: a product may take a minute, a window of seconds would see none
        left = _clock(elapsed / self.fraction - elapsed) if self.done else "-:--"
        return f"{_clock(elapsed)}, {left} left"


def _clock(seconds: float) -> str:
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"


class _Rich:
    """One live display for all open stages; a finished outermost stage leaves its last line on the screen."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Bars | None = None

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Stage]:
        outermost = self._bars is None
        bars = self._bars = self._bars or _rich_bars(self._console)
        meter = _Meter(total, unit)
        task = bars.add_task(name, total=total, meter=meter)
        bars.start()
        try:
            yield _RichStage(bars, task, meter)
        finally:
            meter.end()
            if outermost:
                bars.stop()
                self._bars = None
            else:
                bars.remove_task(task)

    def say(self, sentence: str) -> None:
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _rich_bars(console: Console) -> Bars:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    name = TextColumn("{task.description}", markup=False)
    meter = TextColumn("{task.fields[meter]}", markup=False)  # formatted at every redraw
    # redirect_stdout would send a result that is printed during a stage to stderr
    return Bars(name, BarColumn(bar_width=16), meter, console=console, redirect_stdout=False, refresh_per_second=4)


@dataclass
class _RichStage:
    bars: Bars
    task: TaskID
    meter: _Meter

    def advance(self, n: int = 1, **info: float | str) -> None:
        self.meter.advance(n, **info)
        self.bars.update(self.task, advance=n, refresh=self.meter.due())


class _Plain(_Lines):
    """The same content without rich: one line, rewritten in place; of nested stages the innermost is shown."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._open: list[_PlainStage] = []

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Stage]:
        stage = _PlainStage(total, unit, name=name, draw=self._draw)
        self._open.append(stage)
        self._draw()
        try:
            yield stage
        finally:
            stage.end()
            self._draw()
            self._open.pop()
            self._draw() if self._open else self._write("\n")

    def say(self, sentence: str) -> None:
        self._write(f"\r{_CLEAR}{sentence}\n")
        self._draw()

    def _draw(self) -> None:
        if self._open:
            line = self._open[-1].line()[: shutil.get_terminal_size().columns - 1]  # a wrapped line cannot be rewritten
            self._write(f"\r{_CLEAR}{line}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


@dataclass
class _PlainStage(_Meter):
    name: str = ""
    draw: Callable[[], None] = lambda: None

    def advance(self, n: int = 1, **info: float | str) -> None:
        super().advance(n, **info)
        if self.due():
            self.draw()

    def line(self) -> str:
        bar = "" if self.total is None else "[" + ("#" * round(16 * self.fraction)).ljust(16, ".") + "] "
        return f"{self.name} {bar}{self}"
