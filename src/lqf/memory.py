"""How much memory there is, on any device."""

from __future__ import annotations

import torch

from lqf.data.memory import available_bytes as available_ram
from lqf.device import gpu_number
from lqf.errors import LQFError


def available_bytes(device: torch.device) -> int:
    """Bytes that can be allocated on ``device`` now, by this process's share of a GPU."""
    if device.type != "cuda":
        return available_ram()
    free, total = torch.cuda.mem_get_info(device)
    taken = torch.cuda.memory_allocated(device) + _set_aside(gpu_number(device))
    own = int(torch.cuda.get_per_process_memory_fraction(gpu_number(device)) * total)
    return max(0, min(free + torch.cuda.memory_reserved(device), own) - taken)


def limit_gpu(gigabytes: float, device: torch.device) -> None:
    """Use no more than this of a GPU that others use too; everything that is planned keeps to it."""
    if device.type != "cuda":
        raise LQFError("--memory limits the memory of a GPU, and this runs on a CPU; leave it out")
    _, total = torch.cuda.mem_get_info(device)
    torch.cuda.set_per_process_memory_fraction(min(1.0, gigabytes * 1e9 / total), gpu_number(device))


def _set_aside(number: int) -> int:
    """Bytes between the tensors of recorded passes, which nothing else can have as long as those exist."""
    segments = [s for s in torch.cuda.memory_snapshot() if s["device"] == number]
    return sum(s["total_size"] - s["allocated_size"] for s in segments if s.get("segment_pool_id", (0, 0)) != (0, 0))


def human(n_bytes: float) -> str:
    """Bytes for a person: "1.3 GB", "640 MB"."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes / 1e3:.3g} kB"
