"""From the bytes of an image file, a PIL image or an array to upright 8-bit RGB.

What "properly" means here:

- The EXIF (or XMP) orientation is applied, for pixels that a camera stored lying down.
- Transparency (RGBA, LA, palettes, PNG colour keys) is laid over white, the page that such an image is made for.
- Greyscale deeper than 8 bit is scaled by its full range, never clipped: see `_to_8_bit`.
- What no decoder should see is refused: too many pixels (`lqf.data.room`), whatever a file of a few bytes declares.
- Above `LARGE` pixels an image becomes 8-bit RGB band by band, reduced by a whole factor where at least twice the
  pixels that are needed remain; all threads share the memory for that.
- A large JPEG is decoded at 1/2, 1/4 or 1/8 of its size (a partial inverse DCT, several times faster) when that still
  leaves at least twice the pixels that are needed each way, where the final resize hides the difference.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from lqf.data.formats import decoders, in_words, unreadable_kind
from lqf.data.room import PER_PIXEL, PIXELS, USUAL, VARIABLE, most_pixels
from lqf.errors import LQFError

Raw = bytes | Image.Image | np.ndarray | Tensor

LARGE = 2**25
"""Pixels above which an image is reduced before anything else is done with it: more than cameras have."""
LONGEST = 2**20
"""Pixels of a side: every row takes memory of its own."""
_BAND = 2**22
"""Pixels that are converted at once."""
_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Unreadable(Exception):
    """An image cannot be read; the message is a reason that follows the image's name in a sentence."""


def to_image(raw: Raw, at_least: int | None = None) -> Image.Image:
    """Upright RGB pixels; raises `Unreadable`.

    Args:
        raw: what a source hands out.
        at_least: the side that is needed in the end; a JPEG may be decoded smaller, with sides ≥ 2 · ``at_least``.
    """
    if isinstance(raw, Tensor):
        raise TypeError("tensors go to the network unchanged; they have no picture")
    try:
        image = _opened(raw, at_least)
        with PIXELS.of(PER_PIXEL * image.width * image.height):
            image.load()
            turn = _turn(image)
            rgb = _to_rgb(image, _factor(image, at_least))
            return rgb if turn is None else rgb.transpose(turn)
    except (Unreadable, LQFError):
        raise
    except Exception as e:  # decoders raise anything (struct.error, MemoryError, …): the image is then not readable
        raise Unreadable(_reason(e)) from e


def is_image(file: BinaryIO) -> bool:
    """Whether a file starts like an image that some decoder accepts (its pixels may still be damaged)."""
    try:
        with Image.open(file, formats=decoders()):
            return True
    except Exception:
        return False


def sha256(raw: Raw) -> str:
    """The sha256 of a file's bytes, an array's or tensor's bytes, or a PIL image's RGB pixels."""
    if isinstance(raw, bytes):
        return hashlib.sha256(raw).hexdigest()
    if isinstance(raw, Image.Image):
        return hashlib.sha256(to_image(raw).tobytes()).hexdigest()
    if isinstance(raw, Tensor):  # as bytes, since numpy has no bfloat16
        raw = raw.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(np.ascontiguousarray(raw).data).hexdigest()


def _opened(raw: bytes | Image.Image | np.ndarray, at_least: int | None) -> Image.Image:
    """With its size known and, from a file, its pixels not yet decoded."""
    if isinstance(raw, np.ndarray):  # (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), uint8
        return Image.fromarray(np.ascontiguousarray(raw[..., 0] if raw.ndim == 3 and raw.shape[2] == 1 else raw))
    if isinstance(raw, Image.Image):
        return raw
    if not raw:
        raise Unreadable("is an empty file")
    missing = unreadable_kind(raw[:12])
    if missing:
        raise Unreadable(missing)
    if most_pixels() > USUAL:
        Image.MAX_IMAGE_PIXELS = most_pixels()  # Pillow refuses twice as many
    image = Image.open(io.BytesIO(raw), formats=decoders())
    if image.width * image.height > most_pixels():
        raise Unreadable(_too_many())
    if max(image.size) > LONGEST:
        raise Unreadable(f"has a side of {max(image.size):,} pixels (at most {LONGEST:,} are read)")
    if at_least is not None:
        image.draft(None, (2 * at_least, 2 * at_least))  # does nothing for other formats
    return image


def _factor(image: Image.Image, at_least: int | None) -> int:
    """By which a large image is reduced."""
    if at_least is None or image.width * image.height <= LARGE:
        return 1
    return max(1, min(image.size) // (2 * at_least))


def _turn(image: Image.Image) -> Image.Transpose | None:
    try:  # after load(): TIFF turns its pixels itself and then drops the tag, PNG may carry it behind the pixels
        return _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged metadata around good pixels
        return None


def _to_rgb(image: Image.Image, factor: int) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info and factor == 1:
        return image
    convert = _converter(image)
    if image.width * image.height <= LARGE:
        return convert(image)
    out = Image.new("RGB", (-(-image.width // factor), -(-image.height // factor)))
    for top, band in _bands(image, factor):
        out.paste(convert(band).reduce(factor), (0, top // factor))
    return out


def _converter(image: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """To RGB, of parts of an image."""
    if image.mode.startswith("I") or image.mode == "F":
        return _to_8_bit(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        return _over_white
    return lambda part: part.convert("RGB")


def _bands(image: Image.Image, factor: int = 1) -> Iterator[tuple[int, Image.Image]]:
    """Where they begin, and all rows of an image, a multiple of ``factor`` at a time."""
    rows = max(1, _BAND // (image.width * factor)) * factor
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _over_white(image: Image.Image) -> Image.Image:
    if image.mode == "La":  # the only mode without a direct way to RGBA
        image = image.convert("LA")
    image = image.convert("RGBA")
    if image.getchannel("A").getextrema() == (255, 255):  # opaque: keep the pixels exactly
        return image.convert("RGB")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, image).convert("RGB")


def _to_8_bit(image: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """Greyscale of 16 or 32 bit, integer or float, to 8 bit: round(255 · x / top), for parts of this image.

    16-bit files have top = 65535. In 32 bit nothing says what white is, so top is the smallest of the usual ones that
    holds the image (1 for floats, 255, 65535); pixels below zero or above all of these are stretched from min to max.
    """
    if image.mode.startswith("I;16"):
        return lambda part: Image.fromarray(_SIXTEEN[np.asarray(part)]).convert("RGB")
    low, high = _extrema(image)
    if image.format in ("PNG", "PPM"):  # older Pillows open 16-bit PNGs as "I"
        usual: tuple[float, ...] = (65535,)
    else:
        usual = (1, 255, 65535) if image.mode == "F" else (255, 65535)
    top = next((t for t in usual if 0 <= low and high <= t), math.nan)
    stretched = math.isnan(top)
    start, top = (low, (high - low) or 1.0) if stretched else (0.0, top)

    def convert(part: Image.Image) -> Image.Image:
        x = np.asarray(part).astype(np.float64) - start
        return Image.fromarray(np.rint(x * 255 / top).astype(np.uint8)).convert("RGB")

    return convert


_SIXTEEN = ((np.arange(2**16) + 128) // 257).astype(np.uint8)
"""round(255 · x / 65535) = ⌊(x + 128) / 257⌋ of 16-bit x: no half is ever to be rounded."""


def _extrema(image: Image.Image) -> tuple[float, float]:
    """Least and greatest pixel, all finite."""
    lows, highs = [], []
    for _, band in _bands(image):
        x = np.asarray(band)
        if not np.isfinite(x).all():
            raise Unreadable("has pixels that are NaN or infinite")
        lows.append(float(x.min()))
        highs.append(float(x.max()))
    return min(lows), max(highs)


def _reason(e: Exception) -> str:
    if isinstance(e, UnidentifiedImageError):
        return f"is not an image in a format that is read ({in_words()})"
    if isinstance(e, Image.DecompressionBombError):
        return _too_many()
    if isinstance(e, MemoryError):
        return "needs more memory to decode than there is"
    text = str(e)
    if "truncated" in text.lower() or isinstance(e, EOFError):
        return "is truncated"
    return f"cannot be decoded ({text or type(e).__name__})"


def _too_many() -> str:
    return f"has too many pixels (more than {most_pixels():,}; set {VARIABLE} to allow more)"
