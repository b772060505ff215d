"""Progress on stderr: how far, how exact so far (the residual), and how long still.

Stdout belongs to results (`--json` prints one object there and nothing else), so nothing here ever writes to it.
Library code takes a `Progress` argument that defaults to `SILENT`; the command line passes `terminal_progress()`, and
`LQFClassifier` what `lqf.utils.default_progress` finds right for a terminal, a notebook or a log.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lqf.utils.meter import Meter
from lqf.utils.patience import Patience
from lqf.utils.plain_text import PlainText, TerminalLine
from lqf.utils.progress_lines import ProgressLines
from lqf.utils.text import printable

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
        self._console.print(printable(sentence), markup=False, highlight=False, soft_wrap=True)

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
