"""Threads for decoding: Pillow releases the interpreter's lock while it decodes and resizes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_AT_ONCE = 4096  # tasks that wait in the queue, so that a million images do not mean a million futures


def in_order(function: Callable[[int], T], items: Sequence[int], workers: int) -> Iterator[T]:
    """``map(function, items)`` on ``workers`` threads; on an exception (Ctrl-C) what has not started is dropped."""
    if workers <= 1 or len(items) <= 1:
        yield from map(function, items)
        return
    yield from read_ahead(function, items, workers, _AT_ONCE)


def read_ahead(function: Callable[[int], T], items: Sequence[int], workers: int, ahead: int) -> Iterator[T]:
    """`in_order` with at most ``ahead`` results that nobody has taken yet; made while those taken are used."""
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(max(1, min(workers, len(items))), thread_name_prefix="lqf-decode") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
