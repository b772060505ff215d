"""Main memory that is freed stays with the process, for the next pass.

Passes on a CPU allocate and free tens of megabytes for every layer. glibc takes blocks of that size from the system and
gives them back at once, so that every page of every activation is mapped and zeroed again: on a virtual machine that
took more than half of a forward pass (`benchmarks/results/allocator-*.json`). With these options freed blocks are
reused.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # names of mallopt's options in malloc.h
KEPT = 2 << 30
"""Bytes at the end of the heap that are kept, at the most."""


@cache
def keep_freed_memory() -> bool:
    """Set the options, once; whether that was possible (it is with glibc)."""
    libc = _glibc()
    if libc is None:
        return False
    options = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, KEPT - 1), (_TOP_PAD, 64 << 20))
    return all(libc.mallopt(name, value) == 1 for name, value in options)


def give_back_freed_memory() -> None:
    """So that the system counts it as free again, before anything is planned by that."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> Any:
    try:
        libc = ctypes.CDLL(None)
        return libc if hasattr(libc, "gnu_get_libc_version") and hasattr(libc, "mallopt") else None
    except (OSError, TypeError):  # a system without shared libraries, or Windows
        return None
