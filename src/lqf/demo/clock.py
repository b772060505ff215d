"""How long each stage of the demo took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Clock:
    """Seconds of every stage, in order; ``began`` is a moment of `time.monotonic`."""

    def __init__(self, began: float) -> None:
        self.stages: list[dict[str, Any]] = []
        self.began = began

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Time a stage; its entry is handed out for more to be written into it."""
        entry: dict[str, Any] = {"name": name}
        began = time.monotonic()
        yield entry
        entry["seconds"] = round(time.monotonic() - began, 3)
        self.stages.append(entry)

    def add(self, name: str, seconds: float) -> None:
        """A stage that is over."""
        self.stages.append({"name": name, "seconds": seconds})

    def total(self) -> float:
        """Seconds since the beginning."""
        return round(time.monotonic() - self.began, 3)
