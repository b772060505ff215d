"""Where to compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

from lqf.errors import LQFError
from lqf.runtime.allocator import keep_freed_memory

P = ParamSpec("P")
R = TypeVar("R")


def resolve_device(name: str) -> torch.device:
    """A device by name; "auto" is CUDA where torch sees it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise LQFError(f"there is no device `{name}`; use `auto`, `cpu` or `cuda`") from error
    if device.type not in ("cpu", "cuda"):
        raise LQFError(f"device `{name}` is not supported; use `auto`, `cpu` or `cuda`")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LQFError(f"device `{name}` was asked for, and torch sees no CUDA device; use `auto` or `cpu`")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise LQFError(f"device `{name}` was asked for, and torch sees {torch.cuda.device_count()}, numbered from 0")
    return device


def gpu_number(device: torch.device) -> int:
    """Which GPU: "cuda" without a number is the current one."""
    return torch.cuda.current_device() if device.index is None else device.index


@contextmanager
def computing_on(device: torch.device) -> Iterator[None]:
    """What is recorded and launched without naming a GPU goes to this one; derivatives are possible, wherever the
    caller stands.
    """
    if device.type == "cpu":
        keep_freed_memory()
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext(), torch.inference_mode(False):
        yield


def computing(method: Callable[P, R]) -> Callable[P, R]:
    """Run a method of something with a ``device``, or its name, `computing_on` it."""

    @wraps(method)
    def run(*args: P.args, **options: P.kwargs) -> R:
        device: Any = args[0].device  # type: ignore[attr-defined]
        with computing_on(resolve_device(device) if isinstance(device, str) else device):
            return method(*args, **options)

    return run
