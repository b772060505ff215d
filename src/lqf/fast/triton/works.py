"""Whether Triton can be used on a GPU: it may be installed and yet find no C compiler, or a GPU too old for it."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec

import torch

from lqf.runtime.device import gpu_number


def triton_works(device: torch.device) -> bool:
    """Whether a kernel can be compiled and gives what it should there; otherwise a warning says why, once."""
    return find_spec("triton") is not None and _tried(gpu_number(device))


@cache
def _tried(number: int) -> bool:
    try:
        if _one_more(number) == 1.0:
            return True
        reason = "a first kernel gave a wrong number"
    except Exception as error:  # of the compiler, the driver, or Triton itself
        reason = str(error).strip().split("\n")[0][:200] or type(error).__name__
    warnings.warn(f"Triton does not work here ({reason}); products are made without its kernels, slower", stacklevel=2)
    return False


def _one_more(number: int) -> float:
    from lqf.fast.triton.probe_kernels import add_one

    with torch.cuda.device(number):
        x = torch.zeros(1, device="cuda")
        add_one[(1,)](x)
        return float(x)
