"""Out of memory: other programs may take memory that was free a moment ago, so what did not fit is tried smaller."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from lqf.errors import LQFError
from lqf.runtime.memory import using_share

T = TypeVar("T")
HALVINGS = 3
"""How many times rows per batch are halved before a computation is given up."""


class DoesNotFit(LQFError):
    """A computation ran out of memory with the smallest batches as well."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or in the machine."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "CUDA out of memory" in text)


def in_smaller_batches(compute: Callable[[int], T], rows: int, say: Callable[[str], None], what: str) -> T:
    """``compute`` (rows per batch), again with half of them and plans for half of the memory, as long as it does not
    suffice.

    Args:
        compute: to be called with the rows per batch.
        rows: to begin with.
        say: called with one line every time.
        what: the computation, for that line.

    Raises:
        DoesNotFit: where the smallest batches do not fit either.
    """
    for halving in range(HALVINGS + 1):
        try:
            with using_share(0.5**halving):
                return compute(rows)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        free_memory()  # here, where the error and all that its frames hold is gone
        if rows == 1 or halving == HALVINGS:
            break
        rows = max(1, rows // 2)
        say(f"{what}: out of memory; again with {rows} rows at a time and half of the memory")
    raise DoesNotFit(f"{what} needs more memory than there is, also with {rows} rows at a time; use a smaller size")


def free_memory() -> None:
    """Give back what nothing refers to any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
