"""How much memory there is, on any device."""

from __future__ import annotations

import torch

from lqf.data.memory import available_bytes as available_ram


def available_bytes(device: torch.device) -> int:
    """Bytes that can be allocated on ``device`` now."""
    if device.type != "cuda":
        return available_ram()
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(free + cached)


def human(n_bytes: float) -> str:
    """Bytes for a person: "1.3 GB", "640 MB"."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes / 1e3:.3g} kB"
