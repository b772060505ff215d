"""Where to compute."""

from __future__ import annotations

import torch

from lqf.errors import LQFError


def resolve_device(name: str) -> torch.device:
    """A device by name; "auto" is CUDA where torch sees it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise LQFError(f"there is no device `{name}`; use `auto`, `cpu` or `cuda`") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LQFError(f"device `{name}` was asked for, and torch sees no CUDA device; use `auto` or `cpu`")
    return device
