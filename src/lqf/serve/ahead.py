"""What the first question about the test error would wait for, made behind the page: the test images' kernel.

It is one long computation that reports its steps. At every step questions pass; they find the session as it was.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from lqf.errors import LQFError

if TYPE_CHECKING:
    from lqf.serve.session import Session


class _Stopped(BaseException):
    """The page is closed."""


class Ahead:
    """The computation, in a thread of its own."""

    def __init__(self, session: Session) -> None:
        self.session, self.state = session, "idle"
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, where there is something to do."""
        if self.session.test is None or self.session.analysis.level != "exact":
            return
        self.state = "running"
        self._thread = threading.Thread(target=self._run, name="ahead", daemon=True)
        self._thread.start()

    def now(self) -> dict[str, Any]:
        """As JSON values."""
        return {"state": self.state, **self.session.progress.now(behind=True)}

    def stop(self) -> None:
        """Give it up at its next step."""
        self._stop.set()
        self.wait(5)

    def wait(self, seconds: float | None = None) -> None:
        """Until it has ended."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        progress = self.session.progress
        try:
            with self.session.turns, progress.behind(self._step):
                self.session.prepare_test()
        except (LQFError, MemoryError, RuntimeError):  # who asks for the test error hears why
            pass
        except _Stopped:
            pass
        finally:
            self.state = "ended"

    def _step(self) -> None:
        if self._stop.is_set():
            raise _Stopped
        self.session.turns.let_pass()
