"""What surrounds a running command: signals and warnings."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lqf.utils.progress import Progress


def share_cores() -> None:
    """Let torch's idle threads spin for moments only, then sleep; to be called before torch is imported.

    Long spinning loses a factor of ten where another program wants the cores. Sleeping at once makes a closed-form
    head, thousands of small steps, take four times as long on two cores of one's own (400 images: 24 s instead of 6).
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # gcc's library, about 10 µs
    os.environ.setdefault("KMP_BLOCKTIME", "1")  # Intel's and LLVM's, milliseconds


class SigtermAsCtrlC:
    """A polite kill (a batch system's, a shutdown's) ends a command the way Ctrl-C does: with a last checkpoint.

    Attributes:
        code: exit code of an interruption: 130 by Ctrl-C, 143 by SIGTERM.
    """

    def __init__(self) -> None:
        self.code = 130
        self._before: Any = None

    def __enter__(self) -> SigtermAsCtrlC:
        if threading.current_thread() is threading.main_thread():  # only there signals may be handled
            self._before = signal.signal(signal.SIGTERM, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        # the loss of another process, which ignores it from then on, has to be reported undisturbed
        if self._before is not None and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, self._before)

    def _stop(self, *_: object) -> None:
        self.code = 128 + signal.SIGTERM
        raise KeyboardInterrupt


@contextmanager
def warnings_as_lines(progress: Progress) -> Iterator[None]:
    """Python's warnings as one line each, without file names, and past the progress bar."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        progress.say(f"lqf: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
