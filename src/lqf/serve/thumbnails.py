"""Small pictures of samples by their number, made once and kept while there is room."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from lqf.data import Samples
from lqf.errors import LQFError
from lqf.reports.pictures import thumbnail
from lqf.runtime.memory import cores
from lqf.serve.refused import Refused

SIDES = (160, 480)
ROOM = 64 * 2**20
"""Bytes of all pictures that are kept: about 10,000 small ones."""


@dataclass
class Thumbnails:
    """JPEGs, the latest used ones kept."""

    _made: OrderedDict[Hashable, bytes] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _decoding: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(cores()))

    def jpeg(self, key: str, samples: Samples, i: int, side: int) -> bytes:
        """The picture of sample i, whose samples are called ``key``."""
        if side not in SIDES:
            raise Refused(404, f"pictures have {' or '.join(map(str, SIDES))} pixels")
        name = (key, i, side)
        with self._lock:
            if name in self._made:
                self._made.move_to_end(name)
                return self._made[name]
        with self._decoding:
            made = _jpeg(samples, i, side)
        with self._lock:
            if name not in self._made:
                self._made[name] = made
                self._bytes += len(made)
            while self._bytes > ROOM and len(self._made) > 1:
                self._bytes -= len(self._made.popitem(last=False)[1])
        return made


def _jpeg(samples: Samples, i: int, side: int) -> bytes:
    try:
        image = thumbnail(samples, i, side)
    except LQFError as e:
        raise Refused(404, str(e)) from e
    if image is None:
        raise Refused(404, "tensors have no picture")
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    return buffer.getvalue()
