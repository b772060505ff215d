"""Images in memory: arrays and lists of pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lqf.data.readers.floats import Span, as_tensor, check_finite, is_float, span_of, to_uint8, white_of
from lqf.data.readers.layout import channels_last, check_pictures
from lqf.data.sources import PictureSource, Source, TensorSource
from lqf.errors import LQFError
from lqf.runtime.memory import available_ram
from lqf.settings import NORMALIZED, PICTURES
from lqf.utils.progress import SILENT, Progress

Item = Image.Image | np.ndarray | Tensor


def array_source(array: np.ndarray | Tensor, tensors: str = PICTURES) -> Source:
    """Pictures (N, H, W), (N, H, W, C) or (N, C, H, W), or normalised tensors (N, …), which go in unchanged.

    Args:
        array: uint8 pixels, or floating-point ones of 0 to 1 or of 0 to 255.
        tensors: "normalized": floating-point numbers are the network's inputs, and no pixels.
    """
    name = "the array" if isinstance(array, np.ndarray) else "the tensor"
    rows = np.arange(len(array) if array.ndim else 0)
    if array.ndim < 2 or len(rows) == 0:
        raise LQFError(f"{name} has shape {tuple(array.shape)}; expected one or more images along the first axis")
    if tensors == NORMALIZED:
        _check_normalized(array, name)
        inputs = as_tensor(array)
        check_finite(name, inputs)
        return TensorSource(name, inputs, rows)
    if not is_float(array):
        return PictureSource(name, _pixels(array, name), rows)
    check_pictures(array, name)
    pixels = as_tensor(channels_last(array))
    check_finite(name, pixels)
    return PictureSource(name, to_uint8(pixels, white_of(span_of(pixels), name)).numpy(), rows)


def items_source(
    name: str,
    n: int,
    get: Callable[[int], object],
    *,
    tensors: str = PICTURES,
    again: bool = False,
    progress: Progress = SILENT,
) -> Source:
    """A source of ``n`` items, each read once with ``get`` and kept.

    Pictures beyond half of the free memory are not kept but, where that is possible, read ``again`` when needed.
    """
    normalized = tensors == NORMALIZED
    budget, items, seen = available_ram() // 2, [], None
    with progress.stage("reading the data set", total=n, unit="images") as stage:
        for i in range(n):
            item = _checked(get(i), f"item {i} of {name}", normalized)
            if isinstance(item, Tensor) and not normalized:
                seen = _span(item, f"item {i} of {name}") | seen
            budget -= _bytes(item)
            items.append(item if budget >= 0 or normalized or not again else None)
            stage.advance()
    if normalized:
        return _inputs(name, items)
    white = None if seen is None else white_of(seen, name)

    def read_again(i: int) -> Image.Image | np.ndarray:
        item = _picture(_checked(get(i), f"item {i} of {name}", False), white)
        assert item is not None
        return item

    pictures = [_picture(item, white) for item in items]
    return PictureSource(name, pictures, np.arange(n), read_again if again else None)


def _inputs(name: str, items: Sequence[Any]) -> TensorSource:
    _check_shapes(name, items)
    check_finite(name, items)
    return TensorSource(name, list(items), np.arange(len(items)))


def _span(item: Tensor, what: str) -> Span:
    if not bool(torch.isfinite(item).all()):
        raise LQFError(f"{what} has NaN or infinite values; remove or repair it")
    return Span.of(item)


def _picture(item: Item | None, white: float | None) -> Image.Image | np.ndarray | None:
    """An item as 8-bit pixels; None stays None."""
    if not isinstance(item, Tensor):
        return item
    if white is None:
        raise LQFError("a data set gave a floating-point image where it gave pictures before; give it without chance")
    return to_uint8(item[None], white)[0].numpy()


def _checked(item: object, what: str, normalized: bool) -> Item:
    """An item as a PIL image, a uint8 array with channels last, floating-point pixels likewise, or a tensor."""
    if normalized and not isinstance(item, np.ndarray | Tensor):
        raise LQFError(f"{what} is a {type(item).__name__}; tensors='normalized' takes floating-point tensors alone")
    if isinstance(item, Image.Image):
        with contextlib.suppress(Exception):  # reads the pixels and closes the file; a damaged one is reported later
            item.load()
        return item
    if not isinstance(item, np.ndarray | Tensor):
        raise LQFError(f"{what} is a {type(item).__name__}; an image is a PIL image, an array or a tensor")
    if normalized:
        _check_normalized(item, what)
        return as_tensor(item)
    if not is_float(item):
        return _pixels(item[None], what)[0]
    check_pictures(item[None], what)
    return as_tensor(channels_last(item[None]))[0]


def _pixels(array: np.ndarray | Tensor, what: str) -> np.ndarray:
    """uint8 images as (N, H, W) or (N, H, W, C), without copying."""
    if _dtype(array) != "uint8":
        raise LQFError(
            f"{what} holds {_dtype(array)}; give uint8 images (0 to 255), or floating-point ones (0 to 1 or 0 to 255)"
        )
    check_pictures(array, what)
    pictures = channels_last(array)
    return pictures.detach().cpu().numpy() if isinstance(pictures, Tensor) else pictures


def _dtype(array: np.ndarray | Tensor) -> str:
    return str(array.dtype).removeprefix("torch.")


def _check_normalized(array: np.ndarray | Tensor, what: str) -> None:
    if not is_float(array):
        raise LQFError(
            f"{what} holds {_dtype(array)}; tensors='normalized' says that the network's own floating-point inputs are "
            "given; leave it out for pictures"
        )


def _check_shapes(name: str, tensors: Sequence[Tensor]) -> None:
    first = tensors[0]
    for i, x in enumerate(tensors):
        if x.shape != first.shape or x.dtype != first.dtype or x.device != first.device:
            raise LQFError(
                f"{name} has tensors of different kinds: item 0 is {tuple(first.shape)} {first.dtype}, item {i} is "
                f"{tuple(x.shape)} {x.dtype}; give them one shape and type, or give pictures, which are resized"
            )


def _bytes(item: Item) -> int:
    if isinstance(item, Image.Image):
        return item.width * item.height * 4  # Pillow keeps RGB in four bytes
    return item.nbytes
