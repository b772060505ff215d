"""Memory of images while they are decoded: shared by all threads, so that it grows with neither their number nor the
number of large images.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image

from lqf.errors import LQFError
from lqf.runtime.memory import available_ram

VARIABLE = "LQF_MAX_PIXELS"
"""Environment variable that raises (or lowers) the most pixels an image may have."""
USUAL = 2 * (Image.MAX_IMAGE_PIXELS or 2**26)
"""Pixels above which Pillow refuses an image: about 179 million."""
PER_PIXEL = 8
"""Bytes of a decoded pixel, copies made on the way to RGB included."""
LEAST = 1 << 30
"""Bytes that decoding may always take together."""


def most_pixels() -> int:
    """Of an image; LQFError where the variable holds no number."""
    given = os.environ.get(VARIABLE, "")
    if not given:
        return USUAL
    if not given.isdigit() or int(given) < 1:
        raise LQFError(f"the environment variable {VARIABLE} is `{given}`; give a number of pixels, like 500000000")
    return int(given)


def most_bytes() -> int:
    """Of an image's file: what the most pixels take where nothing is compressed."""
    return PER_PIXEL * most_pixels()


class Room:
    """So many bytes; who wants some waits until they are free. One who wants more than all waits for all."""

    def __init__(self) -> None:
        self._changed, self._size, self._taken = threading.Condition(), 0, 0

    @contextmanager
    def of(self, n_bytes: int) -> Iterator[None]:
        """A block in which so many bytes are taken."""
        with self._changed:
            if not self._size:
                self._size = max(LEAST, available_ram() // 4)
            n_bytes = min(n_bytes, self._size)
            self._changed.wait_for(lambda: self._taken + n_bytes <= self._size)
            self._taken += n_bytes
        try:
            yield
        finally:
            with self._changed:
                self._taken -= n_bytes
                self._changed.notify_all()


FILES, PIXELS = Room(), Room()
"""Of files' contents, which is taken first, and of what is decoded from them."""
