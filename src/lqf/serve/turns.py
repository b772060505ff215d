"""One question at a time, since they share the analysis and the processors; work behind them lets them pass."""

from __future__ import annotations

import threading
import time
from types import TracebackType

POLL = 0.002
"""Seconds between two looks whether somebody still waits."""


class Turns:
    """A lock whose holder can let those pass who wait for it."""

    def __init__(self) -> None:
        self._lock, self._count, self._waiting = threading.Lock(), threading.Lock(), 0

    def __enter__(self) -> Turns:
        with self._count:
            self._waiting += 1
        self._lock.acquire()
        with self._count:
            self._waiting -= 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()

    def let_pass(self) -> None:
        """Called by the holder, where others may do what they like."""
        if not self._waiting:
            return
        self._lock.release()
        while self._waiting:
            time.sleep(POLL)
        self._lock.acquire()
