"""z and J·δ for one δ and many inputs, which is what predictions are made of.

On a CPU a network that sees many inputs is captured as a graph of two streams (`two_streams`): its batch normalisations
are absorbed by the convolutions before them, in the values and in the derivatives, which takes about half of the time
off. Capturing takes seconds itself, so a few inputs go through `FastLinearization`. So does what cannot be captured, or
what gives other values when it is tried.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from lqf.fast.linearization import FastLinearization
from lqf.fast.two_streams import TwoStreams
from lqf.linear.linearize import Linearization

Directional = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Inputs (B, …) -> z and J·δ, both (B, p)."""
PAYS = 256 * 3 * 224 * 224
"""Numbers in all inputs together from which on capturing takes less time than it saves."""
CLOSE = 1e-2
"""Relative difference that is put down to rounding: units close to a kink may fall on its other side."""


def directional(exact: Linearization, delta: Tensor, example: Tensor, rows: int) -> Directional:
    """The passes of one model.

    Args:
        exact: of the network.
        delta: (D,) of the weights.
        example: a few of the inputs, at least two where there are so many.
        rows: how many there are in all; the way that they take depends on nothing else.
    """
    fast = FastLinearization(exact, delta.dtype, example, recorded=False)

    def plain(x: Tensor) -> tuple[Tensor, Tensor]:
        return fast.jvp(x, delta)

    if example.is_cuda or rows * example[0].numel() < PAYS:
        return plain
    return captured(exact, delta, example, fast.format, plain) or plain


def captured(
    exact: Linearization, delta: Tensor, example: Tensor, order: torch.memory_format, plain: Directional
) -> Directional | None:
    """By a captured graph with activations in this order; None where there is none that gives what ``plain`` gives."""

    def two_streams(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            z, dz = streams(x.contiguous(memory_format=order) if x.ndim == 4 else x)
        return z, dz

    try:
        with _quietly(), torch.no_grad():
            streams = TwoStreams(exact.module, exact.layout.views(delta), example)
        streams.to(memory_format=order)  # type: ignore[call-overload]
        found = two_streams(example)
    except Exception:  # whatever the network has that no capture follows, or that has no rule
        return None
    return two_streams if all(map(_close, found, plain(example))) else None


def _close(a: Tensor, b: Tensor) -> bool:
    return bool(torch.linalg.vector_norm(a - b) <= CLOSE * torch.linalg.vector_norm(b))


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what a capture says of its own work."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
