"""How much memory there is: on a GPU, in the machine, and what this container may use of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch

from lqf.errors import LQFError
from lqf.runtime.allocator import give_back_freed_memory
from lqf.runtime.device import gpu_number
from lqf.utils import naming

_UNKNOWN = 4 << 30  # a machine that does not say
_SHARE: ContextVar[float] = ContextVar("share of the free memory", default=1.0)


def available_bytes(device: torch.device) -> int:
    """Bytes that may be allocated on ``device`` now: what is free, by this process's share of it."""
    if device.type != "cuda":
        return int(_SHARE.get() * available_ram())
    free, total = torch.cuda.mem_get_info(device)
    taken = torch.cuda.memory_allocated(device) + _set_aside(gpu_number(device))
    own = int(torch.cuda.get_per_process_memory_fraction(gpu_number(device)) * total)
    return int(_SHARE.get() * max(0, min(free + torch.cuda.memory_reserved(device), own) - taken))


@contextmanager
def using_share(share: float) -> Iterator[None]:
    """A block in which so much of the free memory counts as available: after a computation did not fit, everything
    that is planned by the memory is planned smaller.
    """
    token = _SHARE.set(share)
    try:
        yield
    finally:
        _SHARE.reset(token)


def share_in_use() -> float:
    """The share that counts as available in this block; 1 where nothing has failed to fit."""
    return _SHARE.get()


def limit_gpu(gigabytes: float, device: torch.device) -> None:
    """Use no more than this of a GPU that others use too; everything that is planned keeps to it."""
    if device.type != "cuda":
        raise LQFError(
            f"{naming.either('--memory', 'limit_gpu')} limits the memory of a GPU, and this runs on a CPU; leave it out"
        )
    _, total = torch.cuda.mem_get_info(device)
    torch.cuda.set_per_process_memory_fraction(min(1.0, gigabytes * 1e9 / total), gpu_number(device))


def _set_aside(number: int) -> int:
    """Bytes between the tensors of recorded passes, which nothing else can have as long as those exist."""
    segments = [s for s in torch.cuda.memory_snapshot() if s["device"] == number]
    return sum(s["total_size"] - s["allocated_size"] for s in segments if s.get("segment_pool_id", (0, 0)) != (0, 0))


# --- main memory ---


def available_ram() -> int:
    """Memory that can be used now without swapping or being killed."""
    give_back_freed_memory()
    machine = _meminfo() or _physical() or _UNKNOWN
    container = _cgroup()
    return machine if container is None else min(machine, container)


def cores() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _meminfo(path: str = "/proc/meminfo") -> int | None:
    for line in _text(path).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _physical() -> int | None:
    """Half of the whole memory, where the system does not say what is free (macOS)."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, OSError, ValueError):
        return None


def _cgroup(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> int | None:
    """Limit − (used − file cache that can be dropped), the least over this process's cgroup and those above it."""
    left = []
    for files in (("memory.max", "memory.current", "inactive_file"), _V1):
        for folder in _own_folders(root, own, version_1=files is _V1):
            limit, used = _text(folder / files[0]).strip(), _text(folder / files[1]).strip()
            if limit.isdigit() and used.isdigit():
                stat = dict(line.split()[:2] for line in _text(folder / "memory.stat").splitlines() if " " in line)
                left.append(max(int(limit) - int(used) + int(stat.get(files[2], 0)), 0))
    return min(left, default=None)


_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _own_folders(root: str, own: str, version_1: bool) -> list[Path]:
    """The cgroup of this process and all above it."""
    base = Path(root) / "memory" if version_1 else Path(root)
    inside = ""
    for line in _text(own).splitlines():
        number, controllers, path = line.split(":", 2)
        if ("memory" in controllers.split(",")) if version_1 else (number == "0" and not controllers):
            inside = path.strip("/")
    here = base / inside
    return [p for p in (here, *here.parents) if p == base or base in p.parents]


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
