"""Float32 with and without TensorFloat-32: fast inside a solver, plain for everything that is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import backends

cuda: Any = backends.cuda  # their newer attributes are made when they are read
cudnn: Any = backends.cudnn


@contextmanager
def matmul_precision(fast: bool) -> Iterator[None]:
    """Allow (``fast``) or forbid TF32 in matrix products and convolutions; without effect on CPUs and in float64.

    PyTorch has two ways to say it, which may not be mixed: where the caller of this library has used the newer one,
    so does this.
    """
    try:
        restore = _older(fast)
    except RuntimeError:
        restore = _newer(fast)
    try:
        yield
    finally:
        restore()


def tf32() -> tuple[bool, bool]:
    """Whether matrix products and convolutions may use it now."""
    try:
        return cuda.matmul.allow_tf32, cudnn.allow_tf32
    except RuntimeError:
        return cuda.matmul.fp32_precision == "tf32", cudnn.conv.fp32_precision == "tf32"


def _older(fast: bool) -> Callable[[], None]:
    """`allow_tf32`; reading it fails after the newer attributes were set."""
    products, convolutions = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    cuda.matmul.allow_tf32 = cudnn.allow_tf32 = fast

    def restore() -> None:
        torch.set_float32_matmul_precision(products)  # "medium" is more than a yes
        cudnn.allow_tf32 = convolutions

    return restore


def _newer(fast: bool) -> Callable[[], None]:
    """`fp32_precision`."""
    products, convolutions = cuda.matmul.fp32_precision, cudnn.conv.fp32_precision
    cuda.matmul.fp32_precision = cudnn.conv.fp32_precision = "tf32" if fast else "ieee"

    def restore() -> None:
        cuda.matmul.fp32_precision, cudnn.conv.fp32_precision = products, convolutions

    return restore
