"""`lqf` commands in forked processes that are killed, starved or watched; everything is imported already, so they start
at once.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from cli.conftest import SOLVE
from lqf.cli import main
from lqf.utils import files

QUICK = [*SOLVE, "--loo", "none"]
"""A fit that takes a second: the last stage of a small network, by iteration."""
HANG = 150
"""Seconds after which a process counts as hung."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
MOMENTS = ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.chmod", "shutil.rmtree", "lqf.exchange")
"""Audit events, besides files opened for writing, before which a process may be killed."""


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, or minus the signal; what it wrote; the moments that it went through."""

    code: int
    text: str
    moments: int

    def check(self, *codes: int) -> Ended:
        """It ended in one of these ways, with words and without a traceback."""
        assert "Traceback" not in self.text, self.text
        assert "stopped by" not in self.text, self.text
        assert self.code in codes, (self.code, self.text)
        return self


def forked(
    work: Sequence[object] | Callable[[], object],
    folder: Path,
    *,
    die_at: int = 0,
    after: float | None = None,
    file_bytes: int | None = None,
    memory_bytes: int | None = None,
    also: Callable[[str, tuple[object, ...]], None] | None = None,
) -> Ended:
    """Run words of the command line, or a function, in ``folder``.

    Args:
        work: what to run; a function may return an exit code.
        folder: working directory.
        die_at: kill -9 before this moment (1: the first); 0: at none.
        after: kill -9 after so many seconds.
        file_bytes: largest size of a file, as on a full disk.
        memory_bytes: address space beyond what there is now.
        also: called with every audit event.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _child(work, folder, write, die_at, file_bytes, memory_bytes, also)
    os.close(write)
    began, text = time.monotonic(), b""
    while True:
        left = HANG if after is None else min(HANG, after) - (time.monotonic() - began)
        if left > 0 and select.select([read], [], [], min(left, 0.2))[0]:
            piece = os.read(read, 1 << 16)
            text += piece
            if not piece:
                break
        if after is not None and time.monotonic() - began >= after:
            os.kill(pid, signal.SIGKILL)
            break
        if time.monotonic() - began > HANG:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"hung: {work}\n{text.decode()}")
    _, status = os.waitpid(pid, 0)
    os.close(read)
    words, found, moments = text.decode(errors="replace").rpartition("\x00moments ")
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, words, int(moments)) if found else Ended(code, moments, 0)


def _child(
    work: Sequence[object] | Callable[[], object],
    folder: Path,
    write: int,
    die_at: int,
    file_bytes: int | None,
    memory_bytes: int | None,
    also: Callable[[str, tuple[object, ...]], None] | None,
) -> NoReturn:
    code, moments = 99, 0

    def hear(event: str, words: tuple[object, ...]) -> None:
        nonlocal moments
        opens = event == "open" and isinstance(words[2], int) and words[2] & WRITING and words[0] != os.devnull
        if opens or event in MOMENTS:
            moments += 1
            if moments == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
        if also is not None:
            also(event, words)

    try:
        for number in (1, 2):
            os.dup2(write, number)
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(folder)
        exchange = files.exchange

        def audited(one: Path, other: Path) -> bool:
            sys.audit("lqf.exchange")
            done = exchange(one, other)
            sys.audit("lqf.exchange")
            return done

        files.exchange = audited
        sys.addaudithook(hear)
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        if memory_bytes is not None:
            now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (now + memory_bytes, now + memory_bytes))
        if callable(work):
            returned = work()
            code = returned if isinstance(returned, int) else 0
        else:
            code = main([str(word) for word in work])
        os.write(write, f"\x00moments {moments}".encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
