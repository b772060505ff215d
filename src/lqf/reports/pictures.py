"""Small pictures of samples: for pages as data URIs, and side by side as one PNG."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont, ImageOps

from lqf.data import Samples
from lqf.data.decode import Unreadable, to_image
from lqf.data.sources import TensorSource
from lqf.errors import LQFError
from lqf.utils.text import shortened_path

PAPER, INK, SOFT = (252, 252, 250), (27, 29, 32), (92, 97, 104)


def thumbnail(samples: Samples, i: int, side: int) -> Image.Image | None:
    """The middle square of a sample's picture; None for tensors, which have none."""
    if isinstance(samples.source, TensorSource):
        return None
    try:
        image = to_image(samples.source.raw(i), at_least=side)
    except Unreadable as e:
        raise LQFError(f"`{samples.ids[i]}` {e}") from e
    return ImageOps.fit(image, (side, side), Image.Resampling.LANCZOS)


def data_uri(image: Image.Image) -> str:
    """A picture as a JPEG inside a URI."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def png(image: Image.Image) -> bytes:
    """A picture as the bytes of a PNG."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


Tile = tuple[Image.Image | None, Sequence[str]]
"""A picture and the lines of text below it."""


def contact_sheet(rows: Sequence[tuple[str, Sequence[Tile]]], side: int = 160) -> Image.Image:
    """Rows of pictures of one size, each row under its title, each picture over its lines; the first line is dark."""
    font, bold = _font(13), _font(17)
    gap, line, title = 14, 18, 30
    wide = max((len(tiles) for _, tiles in rows), default=0) or 1
    lines = [max((len(text) for _, text in tiles), default=0) for _, tiles in rows]
    heights = [(title if name else 0) + side + line * n + 2 * gap for (name, _), n in zip(rows, lines, strict=True)]
    sheet = Image.new("RGB", (gap + wide * (side + gap), gap + (sum(heights) or side)), PAPER)
    draw, y = ImageDraw.Draw(sheet), gap
    for (name, tiles), height in zip(rows, heights, strict=True):
        top = y
        if name:
            draw.text((gap, top), _fitted(draw, name, bold, sheet.width - 2 * gap), INK, bold)
            top += title
        for k, (image, text) in enumerate(tiles):
            x = gap + k * (side + gap)
            _tile(sheet, draw, (x, top), side, image)
            for j, words in enumerate(text):
                below = (x, top + side + 5 + line * j)
                draw.text(below, _fitted(draw, words, font, side), INK if j == 0 else SOFT, font)
        y += height
    return sheet


def _tile(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, at: tuple[int, int], side: int, image: Image.Image | None
) -> None:
    if image is None:
        draw.rectangle((*at, at[0] + side, at[1] + side), fill=(232, 232, 226))
    else:
        sheet.paste(image.resize((side, side)) if image.size != (side, side) else image, at)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _fitted(
    draw: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int
) -> str:
    """The text, its middle (of a path what is before its name) left out until it is narrow enough; the font knows no
    narrow space.
    """
    text = text.replace("\u202f", " ")
    if draw.textlength(text, font) <= width:
        return text
    keep = len(text) - 1
    while keep > 2 and draw.textlength(shortened_path(text, keep), font) > width:
        keep -= 1
    return shortened_path(text, keep)
