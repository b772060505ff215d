"""The image formats that are read: one list of their names, extensions and Pillow's decoders.

Only these decoders see a user's files (Pillow knows dozens, some start other programs). Importing a decoder registers
it, which happens when the formats are first asked for. A file's extension does not prove its format, so all are tried
on every file.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from PIL import Image


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        name: Pillow's.
        extensions: of its files; the first one names it in sentences.
        plugin: the module that decodes it.
        package: what to install where it is not decoded; empty: Pillow always does.
        brands: with which such a file begins, behind its first eight bytes (`ftyp` boxes), where it needs a package.
    """

    name: str
    extensions: tuple[str, ...]
    plugin: str
    package: str = ""
    brands: tuple[bytes, ...] = ()

    @property
    def readable(self) -> bool:
        """Whether it is decoded here; a plugin may be there without the library that it calls."""
        _register()
        return self.name in Image.OPEN and getattr(sys.modules.get(self.plugin), "SUPPORTED", True)


ALL = (
    Format("JPEG", (".jpg", ".jpeg", ".jpe", ".jfif"), "PIL.JpegImagePlugin"),
    Format("PNG", (".png",), "PIL.PngImagePlugin"),
    Format("WEBP", (".webp",), "PIL.WebPImagePlugin"),
    Format("BMP", (".bmp",), "PIL.BmpImagePlugin"),
    Format("TIFF", (".tif", ".tiff"), "PIL.TiffImagePlugin"),
    Format("GIF", (".gif",), "PIL.GifImagePlugin"),
    Format("PPM", (".ppm", ".pgm", ".pbm", ".pnm"), "PIL.PpmImagePlugin"),
    Format(
        "HEIF",
        (".heic", ".heif"),
        "pillow_heif.HeifImagePlugin",
        "pillow-heif",
        (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"),
    ),
    Format("AVIF", (".avif",), "PIL.AvifImagePlugin", "'pillow>=11.3'", (b"avif", b"avis")),
)


@cache
def _register() -> None:
    for known in ALL:
        with contextlib.suppress(ImportError):  # a package that is not installed, or an older Pillow
            import_module(known.plugin)


def decoders() -> tuple[str, ...]:
    """Pillow's names of the formats that are read here."""
    return tuple(f.name for f in ALL if f.readable)


def extensions() -> tuple[str, ...]:
    """Of the files that are read here, in lower case."""
    return tuple(e for f in ALL if f.readable for e in f.extensions)


def in_words() -> str:
    """`jpg, png, …`, for sentences."""
    return ", ".join(f.extensions[0][1:] for f in ALL if f.readable)


def installable(extension: str) -> str | None:
    """How to have files with this extension read; None where they are, or cannot be."""
    missing = (f for f in ALL if f.package and not f.readable)
    return next((f"`pip install {f.package}`" for f in missing if extension.lower() in f.extensions), None)


def unreadable_kind(start: bytes) -> str | None:
    """Why a file that starts like this is not read, where a package would do it; the words follow the file's name."""
    if start[4:8] != b"ftyp":
        return None
    for f in ALL:
        if not f.readable and start[8:12] in f.brands:
            return f"is a {f.extensions[0][1:].upper()} image; to have these read, run `pip install {f.package}`"
    return None
