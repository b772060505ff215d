"""Progress on stderr: how far, how exact so far (the residual), and how long still.

Stdout belongs to results (`--json` prints one object there and nothing else), so nothing here ever writes to it.
Library code takes a `Progress` argument that defaults to `SILENT`; the command line passes `terminal_progress()`, and
`LQFClassifier` what `lqf.utils.default_progress` finds right for a terminal, a notebook or a log.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

from lqf.utils.meter import Meter, NamedMeter
from lqf.utils.patience import Patience
from lqf.utils.progress_lines import ProgressLines

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

    def note(self, sentence: str) -> None:
        """The same for a remark on how the work goes, which quick work may leave out."""
        ...

    def rung(self, name: str, seconds: float, rest: float) -> AbstractContextManager[None]:
        """All stages of the ``with`` block belong to one rung of a fit.

        Args:
            name: of the rung.
            seconds: predicted for it.
            rest: predicted for everything after it.
        """
        ...


class _Idle:
    def advance(self, n: int = 1, **info: float | str) -> None:
        pass


class _Silent:
    def stage(self, name: str, total: int | None = None, unit: str = "") -> AbstractContextManager[Stage]:
        return nullcontext(_Idle())

    def say(self, sentence: str) -> None:
        pass

    def note(self, sentence: str) -> None:
        self.say(sentence)

    def rung(self, name: str, seconds: float, rest: float) -> AbstractContextManager[None]:
        return nullcontext()


SILENT: Progress = _Silent()
_CLEAR = "\x1b[K"  # a terminal's "erase to the end of the line"


def terminal_progress(patience: float = 0.0) -> Progress:
    """Bars on stderr where it is a terminal (rich if installed, plain text if not); elsewhere a line now and then.

    Args:
        patience: seconds in which nothing is shown but sentences that matter.
    """
    if not sys.stderr.isatty():
        return ProgressLines(sys.stderr, patience)
    try:
        from rich.console import Console
    except ImportError:
        return PlainText(TerminalLine(sys.stderr), patience)
    return _Rich(Console(stderr=True), patience)


class _Rich(_Silent):
    """One live display for all open stages; a finished outermost stage leaves its last line on the screen."""

    def __init__(self, console: Console, patience: float) -> None:
        self._console = console
        self._bars: Bars | None = None
        self._patience = Patience(patience, self.say)

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Stage]:
        outermost = self._bars is None
        bars = self._bars = self._bars or _rich_bars(self._console)
        meter = Meter(total, unit)
        task = bars.add_task(name, total=total, meter=meter)
        if outermost:
            self._patience.begin()
        self._show(bars)
        try:
            yield _RichStage(bars, task, meter, self._show)
        finally:
            meter.end()
            if not outermost:
                bars.remove_task(task)
            else:
                self._bars = None
                if bars.live.is_started:
                    bars.stop()

    def _show(self, bars: Bars) -> None:
        if self._patience.over() and not bars.live.is_started:
            bars.start()

    def say(self, sentence: str) -> None:
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def note(self, sentence: str) -> None:
        self._patience.note(sentence)


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
    meter: Meter
    show: Callable[[Bars], None]

    def advance(self, n: int = 1, **info: float | str) -> None:
        self.meter.advance(n, **info)
        self.show(self.bars)
        self.bars.update(self.task, advance=n, refresh=self.meter.due())


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
        self._write(f"\r{_CLEAR}{sentence}\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


class PlainText(_Silent):
    """The same content without rich: one line, rewritten in place; of nested stages the innermost is shown.

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
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Stage]:
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
