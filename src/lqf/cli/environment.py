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


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """A polite kill (a batch system's, a shutdown's) ends a command the way Ctrl-C does: with a last checkpoint."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if (
            signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
        ):  # the loss of a process has to be reported undisturbed
            signal.signal(signal.SIGTERM, before)


@contextmanager
def warnings_as_lines(progress: Progress) -> Iterator[None]:
    """Python's warnings as one line each, without file names, and past the progress bar."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        progress.say(f"lqf: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
