"""A time until which to be done: passes over data look at it, and what cannot be done in time is not begun."""

from __future__ import annotations

import math
import os
import time


class OutOfTime(Exception):
    """The time is up in the middle of something, which is given up."""


class Deadline:
    """A moment of `time.monotonic`; nothing is given up for it before there is something to fall back on (`arm`)."""

    def __init__(self, at: float = math.inf):
        self.at, self._armed, self._reserved = at, False, 0.0

    @classmethod
    def after(cls, seconds: float | None, began: float | None = None) -> Deadline:
        """So many seconds from ``began`` on (default: now); None: never."""
        return cls() if seconds is None else cls((time.monotonic() if began is None else began) + seconds)

    def __bool__(self) -> bool:
        return math.isfinite(self.at)

    def left(self) -> float:
        """Seconds that are left for more work; negative where it is past."""
        return self.at - self._reserved - time.monotonic()

    def reserve(self, seconds: float) -> None:
        """So much of the time is for what comes last, such as writing the result."""
        self._reserved = max(self._reserved, seconds)

    def arm(self) -> None:
        """From now on `check` gives up."""
        self._armed = True

    def check(self) -> None:
        """Raise `OutOfTime` where it is past."""
        if self._armed and self.left() < 0:
            raise OutOfTime


def process_began() -> float:
    """When this process was started, in `time.monotonic`: imports take seconds, and a limit counts them.

    From Linux's /proc; elsewhere, now.
    """
    now = time.monotonic()
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as stat, open("/proc/uptime") as up:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
            age = float(up.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return now
    return now - min(max(age, 0.0), 3600.0)
