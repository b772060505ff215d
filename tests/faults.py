"""What goes wrong in tests: Ctrl-C in the middle, a full disk, a folder that may not be read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def ctrl_c(*_: object, **__: object) -> None:
    """Ctrl-C, whatever it is called with."""
    raise KeyboardInterrupt


def disk_full(*_: object, **__: object) -> None:
    """No more room, whatever it is called with."""
    raise OSError(28, "No space left on device")


def at_call(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, number: int, do: Callable[[], object]
) -> list[int]:
    """Do something in call ``number`` (0: in none) of a method, before the method; returns the list of its calls."""
    plain, calls = getattr(owner, method), []

    def counted(self: object, *args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            do()
        return plain(self, *args, **options)

    monkeypatch.setattr(owner, method, counted)
    return calls


def interrupt(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, at: int) -> list[int]:
    """Ctrl-C during call ``at`` (0: never) of a method; returns the list of its calls."""
    return at_call(monkeypatch, owner, method, at, ctrl_c)


def forbid_listing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Folders of this name cannot be listed: chmod 0 would not stop root, as whom tests often run."""
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if Path(path).name == name:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
