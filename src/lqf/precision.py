"""Float32 with and without TensorFloat-32: fast inside a solver, plain for everything that is reported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def matmul_precision(fast: bool) -> Iterator[None]:
    """Allow (``fast``) or forbid TF32 in matrix products and convolutions; without effect on CPUs and in float64."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = fast
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
