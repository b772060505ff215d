"""Images in memory: arrays, lists of pictures, and torch data sets."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lqf.data.sources import PictureSource, Source, TensorSource
from lqf.errors import LQFError
from lqf.runtime.memory import available_ram
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import listed

Item = Image.Image | np.ndarray | Tensor
_CHANNELS = (1, 3, 4)


def array_source(array: np.ndarray | Tensor) -> Source:
    """(N, …) floats, which go to the network unchanged, or uint8 images (N, H, W), (N, H, W, C) or (N, C, H, W)."""
    name = "the array" if isinstance(array, np.ndarray) else "the tensor"
    rows = np.arange(len(array) if array.ndim else 0)
    if array.ndim < 2 or len(rows) == 0:
        raise LQFError(f"{name} has shape {tuple(array.shape)}; expected one or more images along the first axis")
    if _is_float(array):
        tensors = _as_tensor(array)
        _check_finite(name, tensors)
        return TensorSource(name, tensors, rows)
    return PictureSource(name, _channels_last(array, name), rows)


def items_source(
    name: str, n: int, get: Callable[[int], Item], *, again: bool = False, progress: Progress = SILENT
) -> Source:
    """A source of ``n`` items, each read once with ``get`` and kept.

    Pictures beyond half of the free memory are not kept but, where that is possible, read ``again`` when needed.
    """
    budget, items = available_ram() // 2, []
    with progress.stage("reading the data set", total=n, unit="images") as stage:
        for i in range(n):
            item = _checked(get(i), f"item {i} of {name}")
            budget -= _bytes(item)
            items.append(item if budget >= 0 or isinstance(item, Tensor) or not again else None)
            stage.advance()
    tensors = [item for item in items if isinstance(item, Tensor)]
    if tensors and len(tensors) == n:
        _check_shapes(name, tensors)
        _check_finite(name, tensors)
        return TensorSource(name, tensors, np.arange(n))
    if tensors:
        raise LQFError(f"{name} mixes floating-point tensors with pictures; give one kind")
    pictures: list[Any] = items

    def read_again(i: int) -> Image.Image | np.ndarray:
        item = _checked(get(i), f"item {i} of {name}")
        assert not isinstance(item, Tensor)
        return item

    return PictureSource(name, pictures, np.arange(n), read_again if again else None)


def _checked(item: object, what: str) -> Item:
    """An item as a PIL image, a uint8 array with channels last, or a floating-point tensor."""
    if isinstance(item, Image.Image):
        with contextlib.suppress(Exception):  # reads the pixels and closes the file; a damaged one is reported later
            item.load()
        return item
    if isinstance(item, np.ndarray | Tensor):
        if _is_float(item):
            return _as_tensor(item)
        return _channels_last(item[None], what)[0]
    raise LQFError(f"{what} is a {type(item).__name__}; an image is a PIL image, an array or a tensor")


def _channels_last(images: np.ndarray | Tensor, what: str) -> np.ndarray:
    """uint8 images as (N, H, W) or (N, H, W, C), without copying.

    Where both readings of a shape are possible, numpy arrays have channels last and torch tensors have them first.
    """
    first = isinstance(images, Tensor)
    array = images.detach().cpu().numpy() if isinstance(images, Tensor) else images
    if array.dtype != np.uint8:
        raise LQFError(f"{what} holds {array.dtype}; give uint8 images (0 to 255) or floats for the network")
    if array.ndim == 3 and array.size:
        return array
    if array.ndim == 4 and array.size:
        for axis in (1, 3) if first else (3, 1):
            if array.shape[axis] in _CHANNELS:
                return np.moveaxis(array, axis, 3)
    raise LQFError(
        f"{what} has images of shape {array.shape[1:]}; expected (H, W), (H, W, C) or (C, H, W) with C = 1, 3 or 4"
    )


def _is_float(array: np.ndarray | Tensor) -> bool:
    return array.is_floating_point() if isinstance(array, Tensor) else array.dtype.kind == "f"


def _as_tensor(array: np.ndarray | Tensor) -> Tensor:
    if isinstance(array, Tensor):
        return array.detach()
    if array.dtype.itemsize > 8:  # long double
        array = array.astype(np.float64)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch has no negative strides
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writ")  # we never write to a user's array
        return torch.from_numpy(array)


def _check_finite(name: str, tensors: Tensor | Sequence[Tensor]) -> None:
    bad: list[int] = []
    for start in range(0, len(tensors), 256):  # the mask of a few rows at a time, not of all
        bad += [i for i, x in enumerate(tensors[start : start + 256], start) if not bool(torch.isfinite(x).all())]
    if bad:
        raise LQFError(f"{name} has NaN or infinite values in the samples {listed(bad)}; remove or repair them")


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
