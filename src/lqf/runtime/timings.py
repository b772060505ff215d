"""What was timed on this machine before, so that planning does not time it again: one small JSON file.

It lies in the user's cache folder ($XDG_CACHE_HOME or ~/.cache, `lqf/timings.json`); $LQF_CACHE names another folder,
and `off` keeps none. Losing it costs the seconds of measuring again; where it cannot be read or written, nothing is
kept.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import torch

from lqf.runtime.hardware import hardware
from lqf.utils.files import write_file

MOST = 200
"""Entries that are kept, the newest."""


def timings_file() -> Path | None:
    """Where the timings are; None where none are kept."""
    folder = os.environ.get("LQF_CACHE", "")
    if folder.lower() == "off":
        return None
    if folder:
        return Path(folder).expanduser() / "timings.json"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "lqf" / "timings.json"


def recall(what: str, device: torch.device) -> Any:
    """What was remembered under a name on such a device, with as many threads and this torch; None: nothing."""
    return _read().get(_key(what, device))


def remember(what: str, device: torch.device, value: Any) -> None:
    """Keep JSON values under a name."""
    path = timings_file()
    if path is None:
        return
    known, key = _read(), _key(what, device)
    known.pop(key, None)
    known[key] = value
    try:
        write_file(path, json.dumps(dict(list(known.items())[-MOST:]), indent=1))
    except OSError:
        return


def _read() -> dict[str, Any]:
    path = timings_file()
    try:
        known = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _key(what: str, device: torch.device) -> str:
    return f"{_machine(device, torch.get_num_threads())} | {what}"


@cache
def _machine(device: torch.device, threads: int) -> str:
    found = hardware(device)
    return f"{found['device']}, {threads} threads, torch {found['torch']}"
