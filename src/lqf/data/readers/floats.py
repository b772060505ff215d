"""Floating-point arrays as pictures: pixels of 0 to 1 or of 0 to 255, told apart by the brightest of all of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
import torch
from torch import Tensor

from lqf.errors import LQFError
from lqf.utils.text import listed

Array = np.ndarray | Tensor
AT_ONCE = 256
"""Rows of an array that are looked at or converted together: a copy of all would need the memory twice."""
UNIT, BYTE = 1.0, 255.0
"""What white may be."""
_ROUND = 0.5
"""Half a step of 8 bits: what rounding may add to a pixel."""
_LEAST_BRIGHT = 5.0
"""A set of pictures of 0 to 255 has a pixel above this. Pictures that were divided by 127.5, or by their standard
deviation, end between here and 1 and are nothing that can be told."""


@dataclass(frozen=True)
class Span:
    """The least and the greatest value."""

    low: float
    high: float

    @classmethod
    def of(cls, x: Array) -> Span:
        """Of finite values."""
        return cls(float(x.min()), float(x.max()))

    def __or__(self, other: Span | None) -> Span:
        """Of both."""
        return self if other is None else Span(min(self.low, other.low), max(self.high, other.high))


def is_float(array: Array) -> bool:
    """Whether it holds floating-point numbers."""
    return array.is_floating_point() if isinstance(array, Tensor) else array.dtype.kind == "f"


def as_tensor(array: Array) -> Tensor:
    """The same numbers, in the same memory where torch can have them there."""
    if isinstance(array, Tensor):
        return array.detach()
    if array.dtype.itemsize > 8:  # long double
        array = array.astype(np.float64)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch has no negative strides
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writ")  # we never write to a user's array
        return torch.from_numpy(array)


def check_finite(name: str, tensors: Tensor | Sequence[Tensor]) -> None:
    """LQFError with the samples that have NaN or infinite values."""
    bad: list[int] = []
    for start in range(0, len(tensors), AT_ONCE):
        bad += [i for i, x in enumerate(tensors[start : start + AT_ONCE], start) if not bool(torch.isfinite(x).all())]
    if bad:
        raise LQFError(f"{name} has NaN or infinite values in the samples {listed(bad)}; remove or repair them")


def white_of(span: Span, name: str) -> float:
    """What white is, 1 or 255; LQFError where the numbers are no pixels."""
    if span.low >= -_ROUND / BYTE and span.high <= UNIT + _ROUND / BYTE:
        return UNIT
    if span.low >= -_ROUND and _LEAST_BRIGHT < span.high <= BYTE + _ROUND:
        return BYTE
    raise LQFError(
        f"{name} has floating-point values from {span.low:.3g} to {span.high:.3g}; pixels are 0 to 1 or 0 to 255 "
        "(undo a Normalize, or leave it out), and what is already normalised for the network, or no picture, is said "
        "to be so by LQFClassifier(tensors='normalized')"
    )


def span_of(tensor: Tensor) -> Span:
    """Of all rows (N, …), of finite values."""
    return reduce(or_, (Span.of(part) for part in tensor.split(AT_ONCE)))


def to_uint8(tensor: Tensor, white: float) -> Tensor:
    """round(255 · x / white) of every row (N, …), on the CPU."""
    out = torch.empty(tensor.shape, dtype=torch.uint8)
    for start in range(0, len(tensor), AT_ONCE):
        part = tensor[start : start + AT_ONCE]
        work = part.cpu().to(torch.float64 if part.dtype == torch.float64 else torch.float32)
        out[start : start + AT_ONCE] = (work * (BYTE / white)).round_().clamp_(0, 255)
    return out
