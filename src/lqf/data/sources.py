"""Where images come from: files, pictures in memory, a data set that is read again, tensors for the network.

A source hands out *raw* things (the bytes of a file, a PIL image, an array, a tensor); `decode` turns them into pixels.
So the bytes of a file are read once for both its hash and its pixels, and sources know nothing of image formats.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lqf.data.decode import Raw, Unreadable, to_image
from lqf.data.room import most_bytes
from lqf.utils.regular import NotRegular, read_regular

_ONE_AT_A_TIME = threading.Lock()


class Source(Protocol):
    """N images, read one at a time, from any thread."""

    @property
    def name(self) -> str:
        """What it is, in a sentence: `photos/train`, or "the array"."""
        ...

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of an image as an array, where the first one is one: (H, W) or (H, W, C), or that of a tensor."""
        ...

    def __len__(self) -> int: ...

    def raw(self, i: int) -> Raw:
        """The i-th image, undecoded; raises `Unreadable` with a reason."""
        ...

    def read(self, i: int) -> Image.Image | Tensor:
        """The i-th image, upright and RGB, at its full size; or the tensor as it was given."""
        ...

    def select(self, rows: np.ndarray) -> Source:
        """The source of these rows."""
        ...


@dataclass(frozen=True)
class FileSource:
    """Image files."""

    name: str
    paths: tuple[Path, ...]
    shape: None = None

    def __len__(self) -> int:
        return len(self.paths)

    def raw(self, i: int) -> bytes:
        try:
            return read_regular(self.paths[i], most_bytes())
        except NotRegular as e:
            raise Unreadable(str(e)) from e
        except MemoryError as e:
            raise Unreadable("needs more memory to be read than there is") from e
        except OSError as e:
            raise Unreadable(f"cannot be opened: {e.strerror or e}") from e

    def read(self, i: int) -> Image.Image:
        return to_image(self.raw(i))

    def select(self, rows: np.ndarray) -> FileSource:
        return FileSource(self.name, tuple(self.paths[i] for i in rows))


def file_bytes(source: Source, i: int) -> int:
    """Size of the i-th image's file; 0 where there is none."""
    try:
        return source.paths[i].stat().st_size if isinstance(source, FileSource) else 0
    except OSError:
        return 0


@dataclass(frozen=True)
class PictureSource:
    """Pictures in memory: uint8 arrays (H, W) or (H, W, C), or PIL images.

    ``rows`` maps sample to item, so that selecting never copies pixels. An item that is None was not kept because
    memory was short; ``again`` reads it again, one thread at a time, since a user's data set need not be thread-safe.
    """

    name: str
    items: Sequence[Image.Image | np.ndarray | None] | np.ndarray = field(repr=False)
    rows: np.ndarray = field(repr=False)
    again: Callable[[int], Image.Image | np.ndarray] | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, ...] | None:
        first = self.items[0]
        return tuple(first.shape) if isinstance(first, np.ndarray) else None

    def __len__(self) -> int:
        return len(self.rows)

    def raw(self, i: int) -> Image.Image | np.ndarray:
        row = int(self.rows[i])
        item = self.items[row]
        if item is not None:
            return item
        assert self.again is not None
        with _ONE_AT_A_TIME:
            return self.again(row)

    def read(self, i: int) -> Image.Image:
        return to_image(self.raw(i))

    def select(self, rows: np.ndarray) -> PictureSource:
        return PictureSource(self.name, self.items, self.rows[rows], self.again)


@dataclass(frozen=True)
class TensorSource:
    """Normalised tensors of one shape, which go to the network unchanged."""

    name: str
    items: Tensor | list[Tensor] = field(repr=False)  # (M, …), or M tensors: stacking them would need the memory twice
    rows: np.ndarray = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.items[0].shape)

    def __len__(self) -> int:
        return len(self.rows)

    def raw(self, i: int) -> Tensor:
        return self.items[int(self.rows[i])]

    def read(self, i: int) -> Tensor:
        return self.raw(i)

    def batch(self, index: np.ndarray) -> Tensor:
        """The tensors at ``index``, stacked: (B, …)."""
        rows = torch.from_numpy(self.rows[index])
        if isinstance(self.items, Tensor):
            return self.items[rows.to(self.items.device)]
        if len(rows) == 0:
            return self.items[0].new_empty((0, *self.items[0].shape))
        return torch.stack([self.items[i] for i in rows.tolist()])

    def select(self, rows: np.ndarray) -> TensorSource:
        return TensorSource(self.name, self.items, self.rows[rows])
