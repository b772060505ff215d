"""What waits for the garbage collector is not free."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collector() -> Iterator[None]:
    """Without a search for cycles."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
