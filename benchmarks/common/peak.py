"""How long something takes and how much memory it needs beyond what was held before."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass
class Measured:
    """Seconds, bytes held before, and the peak of bytes held meanwhile (of the device, or of this process)."""

    seconds: float = 0.0
    before: float = 0.0
    peak: float = 0.0

    @property
    def beyond(self) -> float:
        """What it took in addition."""
        return self.peak - self.before


@contextmanager
def measured(device: torch.device) -> Iterator[Measured]:
    """Fills in its value when it is left. On a CPU the memory is the process's resident set (Linux; 0 elsewhere)."""
    out = Measured(before=_reset(device))
    began = time.perf_counter()
    yield out
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    out.seconds = time.perf_counter() - began
    out.peak = float(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else _status("VmHWM")


def _reset(device: torch.device) -> float:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        return float(torch.cuda.memory_allocated(device))
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed would otherwise count as held
        Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark to what is held now
    return _status("VmRSS")


def _status(name: str) -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith(name)), 0.0)
