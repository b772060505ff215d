"""Claims: which process computes which cell, so that the same command may run several times on one folder.

A claim is a file that is created only where there is none and that names its process. A process that has died, killed
say, leaves its claims behind, and another one takes them over: on the same machine at once, since the system knows
which processes live; from another machine when the file has not been touched for `SILENT_SECONDS`, which its process
does all the time. Should two processes compute the same cell in spite of that, both write the same result, whole.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TOUCH_SECONDS, SILENT_SECONDS = 15.0, 120.0
"""How often a living process touches its claims; after what silence one of another machine counts as dead."""


class Claims:
    """The claims in a folder, and those of them that this object holds; a context that lets go of them at its end."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._me = {"machine": machine(), "pid": os.getpid(), "started": started(os.getpid())}
        self._held: set[str] = set()
        self._ended = threading.Event()
        self._toucher = threading.Thread(target=self._touch, daemon=True)

    def __enter__(self) -> Claims:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._toucher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._toucher.join()
        for name in list(self._held):
            self.release(name)

    def take(self, name: str) -> bool:
        """Claim a cell; False: a living process has it."""
        with self.lock():
            if self._living(self._path(name)):
                return False
            self._path(name).unlink(missing_ok=True)
            try:
                with self._path(name).open("x", encoding="utf-8") as file:  # exclusive where the lock is none, too
                    json.dump({**self._me, "host": platform.node()}, file)
            except FileExistsError:
                return False
            self._held.add(name)
            return True

    def release(self, name: str) -> None:
        """Let go of a cell, whether it is computed or not; a claim that was taken over stays."""
        self._held.discard(name)
        with self.lock():
            if self._owner(self._path(name)) == self._me:
                self._path(name).unlink(missing_ok=True)

    def names(self) -> set[str]:
        """Of all cells with a claim, whether its process lives or not."""
        return {p.stem for p in self.folder.glob("*.claim")}

    def living(self) -> list[str]:
        """Names of all cells that are being computed now, by whomever."""
        return [p.stem for p in sorted(self.folder.glob("*.claim")) if self._living(p)]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep all others waiting for a moment; the system frees the lock of a process that dies.

        Where there is none (Windows), two processes may at worst compute the same cell.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            import fcntl
        except ImportError:
            yield
            return
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.claim"

    def _owner(self, path: Path) -> dict[str, Any] | None:
        """Who wrote a claim; None: there is none, or it is being written."""
        try:
            owner = json.loads(path.read_text(encoding="utf-8"))
            return {k: owner[k] for k in self._me}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _living(self, path: Path) -> bool:
        owner = self._owner(path)
        if owner is not None and owner["machine"] == self._me["machine"] and self._me["started"] is not None:
            return started(owner["pid"]) == owner["started"]
        try:
            return time.time() - path.stat().st_mtime < SILENT_SECONDS
        except FileNotFoundError:
            return False

    def _touch(self) -> None:
        while not self._ended.wait(TOUCH_SECONDS):
            for name in list(self._held):
                with suppress(OSError):
                    os.utime(self._path(name))


def machine() -> str:
    """This machine since it was switched on, with its numbers of processes: a container has its own."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def started(pid: int) -> str | None:
    """When a living process was started, in ticks, so that its number is not mistaken for a later one's.

    None where it does not live, or where the system does not say (there is no /proc).
    """
    try:
        state, *rest = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else rest[18]
