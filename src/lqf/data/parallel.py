"""Threads for decoding: Pillow releases the interpreter's lock while it decodes and resizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_AT_ONCE = 4096  # tasks that wait in the queue, so that a million images do not mean a million futures


def in_order(function: Callable[[int], T], items: Sequence[int], workers: int) -> Iterator[T]:
    """``map(function, items)`` on ``workers`` threads; on an exception (Ctrl-C) what has not started is dropped."""
    if workers <= 1 or len(items) <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(min(workers, len(items)), thread_name_prefix="lqf-decode") as pool:
        for start in range(0, len(items), _AT_ONCE):
            yield from pool.map(function, items[start : start + _AT_ONCE])  # cancels the rest when it is left early
