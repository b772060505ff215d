"""Which axis of an array is what: of pictures, of one picture among arrays that may hold many, of normalised tensors.

One picture is (H, W, C) or (C, H, W) with C = 1, 3 or 4 channels, and many are (N, H, W, C), (N, C, H, W) or, grey,
(N, H, W). Where two readings are possible, numpy arrays have channels last and torch tensors have them first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from lqf.errors import LQFError

Array = np.ndarray | Tensor
Shape = tuple[int, ...]
_CHANNELS = (1, 3, 4)
_UNDERSTOOD = (
    "one picture is (H, W, 3) or (3, H, W), several are (N, H, W, 3) or (N, 3, H, W), with 1 channel (grey) or 4 "
    "(transparent) likewise"
)


def check_pictures(array: Array, what: str) -> None:
    """LQFError where (N, …) is not (N, H, W), (N, H, W, C) or (N, C, H, W)."""
    shape = tuple(array.shape)
    if 0 in shape or not (len(shape) == 3 or (len(shape) == 4 and _channel_axis(array, 1) is not None)):
        raise LQFError(
            f"{what} has images of shape {shape[1:]}; expected (H, W), (H, W, C) or (C, H, W) with C = 1, 3 or 4 "
            "(for what is no picture: LQFClassifier(tensors='normalized'))"
        )


def channels_last(array: Array) -> Array:
    """Pictures (N, H, W) as they are, others as (N, H, W, C), without copying."""
    axis = _channel_axis(array, 1) if array.ndim == 4 else None
    if axis is None:
        return array
    return array.movedim(axis, 3) if isinstance(array, Tensor) else np.moveaxis(array, axis, 3)


def _channel_axis(array: Array, start: int) -> int | None:
    """The axis of the channels among three that begin at ``start``."""
    order = (start, start + 2) if isinstance(array, Tensor) else (start + 2, start)
    return next((axis for axis in order if array.shape[axis] in _CHANNELS), None)


def as_list(source: Any) -> Any:
    """One picture as a batch or a list of one; anything else, as what may be many, as it is."""
    if isinstance(source, Image.Image):
        return [source]
    one = isinstance(source, np.ndarray | Tensor) and source.ndim == 3 and _channel_axis(source, 0) is not None
    return source[None] if one else source


def picture_batch(array: Array, fitted: Shape | None) -> Array:
    """Pictures to predict along the first axis; one picture becomes a batch of one.

    (A, B, C) can be one picture or A grey ones. Where the model was fitted on grey arrays it is A grey pictures, unless
    C = 3 or 4 says that it is one in colour; where it was not, it is one picture, and must have channels.

    Args:
        array: what was given.
        fitted: (H, W) or (H, W, C) of one picture of the fit; None: those were no arrays.

    Raises:
        LQFError: where the shape can be read in two ways, or in none.
    """
    shape = tuple(array.shape)
    grey = fitted is not None and len(fitted) == 2
    if array.ndim == 4 or (grey and array.ndim == 3 and shape[1:] == fitted):
        return array
    if grey and array.ndim == 2:
        return array[None]
    axis = _channel_axis(array, 0) if array.ndim == 3 else None
    if axis is not None and not (grey and shape[0] in (3, 4) and shape[2] not in (3, 4)):
        return array[None]
    if grey and array.ndim == 3 and axis is None:
        return array
    raise LQFError(f"{_named(array)} was given to a model fitted on {_fitted(fitted)}; {_UNDERSTOOD}")


def tensor_batch(array: Array, fitted: Shape | None) -> Array:
    """Normalised tensors to predict along the first axis; one of them becomes a batch of one.

    Args:
        array: what was given.
        fitted: shape of one tensor of the fit; None: it is not known, and the first axis is that of the samples.
    """
    if fitted is None:
        return array
    shape = tuple(array.shape)
    one = shape if array.ndim == len(fitted) else shape[1:]
    sizes_may_differ = len(fitted) == len(one) == 3 and one[0] == fitted[0]  # pictures (C, H, W)
    if one != fitted and not sizes_may_differ:
        several = ", ".join(["N", *map(str, fitted)])
        raise LQFError(
            f"{_named(array)} was given to a model fitted on tensors of shape {fitted}; give one such tensor, or "
            f"several as ({several})"
        )
    return array[None] if one == shape else array


def _named(array: Array) -> str:
    kind = "a tensor" if isinstance(array, Tensor) else "an array"
    return f"{kind} of shape {tuple(array.shape)}"


def _fitted(shape: Shape | None) -> str:
    if shape is None:
        return "pictures in colour"
    return f"grey pictures {shape}" if len(shape) == 2 else f"pictures {shape}"
