"""How far a stage is, how long it has taken and how long it still will."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

_REDRAW_SECONDS = 0.1


@dataclass
class Meter:
    """What stands beside a bar; `str()` of it is always current, so a bar that is redrawn shows the time running."""

    total: int | None
    unit: str
    done: int = 0
    info: dict[str, float | str] = field(default_factory=dict)
    started: float = field(default_factory=lambda: time.monotonic())
    drawn: float = -1.0
    seconds: float | None = None  # set when the stage has ended

    def advance(self, n: int = 1, **info: float | str) -> None:
        """Count `n` more units done."""
        self.done += n
        self.info.update(info)

    def due(self) -> bool:
        """Is it time to draw again? At most ten times a second, so that a bar costs nothing."""
        if time.monotonic() - self.drawn < _REDRAW_SECONDS:
            return False
        self.drawn = time.monotonic()
        return True

    def end(self) -> None:
        """From now on only the time that it took is shown."""
        self.seconds = time.monotonic() - self.started

    @property
    def fraction(self) -> float:
        """Of the units, that which is done."""
        return min(self.done / self.total, 1.0) if self.total else 0.0

    @property
    def count(self) -> str:
        """`2/5 folds`."""
        count = f"{self.done}" if self.total is None else f"{self.done}/{self.total}"
        return f"{count} {self.unit}".rstrip()

    def __str__(self) -> str:
        shown = [f"{k} {v:.2g}" if isinstance(v, float) else f"{k} {v}" for k, v in self.info.items()]
        return "  ".join([self.count, *shown, self._time()])

    @property
    def left(self) -> float | None:
        """Seconds still to go; None where nothing is known about them."""
        if not self.total or not self.done:
            return None
        # the mean rate so far, not a recent one: a product may take a minute, a window of seconds would see none
        elapsed = time.monotonic() - self.started
        return elapsed / self.fraction - elapsed

    def _time(self) -> str:
        if self.seconds is not None:
            return _clock(self.seconds)
        elapsed = _clock(time.monotonic() - self.started)
        if not self.total:
            return elapsed
        return f"{elapsed}, {'-:--' if self.left is None else _clock(self.left)} left"


def _clock(seconds: float) -> str:
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"


@dataclass
class NamedMeter(Meter):
    """A stage that is shown in text: an advance calls ``show``."""

    name: str = ""
    show: Callable[[], None] = lambda: None

    def advance(self, n: int = 1, **info: float | str) -> None:
        super().advance(n, **info)
        if self.due():
            self.show()
