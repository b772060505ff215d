"""Images that somebody drops on the page: of a limited size and kind, decoded as training images are, never written."""

from __future__ import annotations

import io
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from lqf.data import Samples
from lqf.data.decode import Unreadable, to_image
from lqf.data.formats import decoders, in_words
from lqf.serve.refused import Refused

MOST_BYTES = 20 * 2**20
MOST_PIXELS = 40_000_000
"""An upload is decoded at its full size once: 40 million pixels are 120 MB."""
MOST_KEPT = 8
"""Of the latest uploads, for their pictures and for questions about them."""


@dataclass(frozen=True)
class Bytes:
    """One image file that is in memory only."""

    data: bytes = field(repr=False)
    name: str = "the image"
    shape: None = None

    def __len__(self) -> int:
        return 1

    def raw(self, i: int) -> bytes:
        return self.data

    def read(self, i: int) -> Image.Image:
        return to_image(self.data)

    def select(self, rows: np.ndarray) -> Bytes:
        return self


@dataclass
class Uploads:
    """The latest ones, by number."""

    kept: OrderedDict[int, Samples] = field(default_factory=OrderedDict)
    count: int = 0

    def add(self, data: bytes) -> int:
        """Keep a checked file; its number."""
        check_upload(data)
        samples = Samples(("your image",), (), np.array([-1]), np.ones(1), None, Bytes(data))
        number, self.count = self.count, self.count + 1
        self.kept[number] = samples
        while len(self.kept) > MOST_KEPT:
            self.kept.popitem(last=False)
        return number


def check_upload(data: bytes) -> None:
    """Refuse what is too large or no image, before and while it is decoded."""
    if len(data) > MOST_BYTES:
        raise Refused(413, f"the file is larger than {MOST_BYTES // 2**20} MB; give a smaller one")
    try:
        with Image.open(io.BytesIO(data), formats=decoders()) as image:
            width, height = image.size
    except Image.DecompressionBombError:
        raise Refused(413, "the image has too many pixels; give a smaller one") from None
    except Exception:  # decoders raise anything
        raise Refused(415, f"this is not an image in a format that is read ({in_words()})") from None
    if width * height > MOST_PIXELS:
        raise Refused(
            413, f"the image has {width} × {height} pixels; give one of {MOST_PIXELS // 10**6} million or fewer"
        )
    try:
        to_image(data)
    except Unreadable as reason:
        raise Refused(415, f"the image {reason}") from None
    except MemoryError:
        raise Refused(413, "the image needs more memory than there is; give a smaller one") from None
