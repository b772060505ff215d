"""Quick work shows nothing: bars and remarks wait until some seconds have passed."""

from __future__ import annotations

import time
from collections.abc import Callable


class Patience:
    """Whether work has taken long enough to be shown, and what was remarked until then.

    Args:
        seconds: from now on, and again from where work goes on after a rest as long.
        say: prints a line.
    """

    def __init__(self, seconds: float, say: Callable[[str], None]) -> None:
        self._seconds, self._say = seconds, say
        self._seen = time.monotonic()
        self._until = self._seen + seconds
        self._kept: list[str] = []

    def begin(self) -> None:
        """Work begins, or goes on."""
        seen = self._seen
        if self.over() and self._seen - seen > self._seconds:
            self._until = self._seen + self._seconds

    def over(self) -> bool:
        """Whether the seconds have passed; what was kept is said when they have."""
        self._seen = time.monotonic()
        if self._seen < self._until:
            return False
        kept, self._kept = self._kept, []
        for sentence in kept:
            self._say(sentence)
        return True

    def note(self, sentence: str) -> None:
        """Say a sentence when the seconds have passed; never, where the work ends before."""
        self._kept.append(sentence)
        self.over()
