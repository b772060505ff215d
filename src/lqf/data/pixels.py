"""The two kinds of opened images: pictures, in memory or decoded when asked for, and tensors that are passed on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from lqf.data.crops import fixed_crops, fixed_windows
from lqf.data.decode import Unreadable, sha256, to_image
from lqf.data.parallel import in_order
from lqf.data.preprocess import Preprocess
from lqf.data.room import FILES
from lqf.data.samples import Index, Samples, positions
from lqf.data.sources import TensorSource, file_bytes
from lqf.errors import LQFError
from lqf.utils.text import counted

Skipped = tuple[tuple[str, str], ...]  # (id, reason)


@dataclass(eq=False)
class PixelImages:
    """Pictures as uint8: ``store`` (N, 3, R, R) holds them resized, or is None and they are decoded when asked for."""

    samples: Samples
    preprocess: Preprocess
    hashes: tuple[str, ...]
    skipped: Skipped
    workers: int
    store: np.ndarray | None = field(repr=False)

    def __repr__(self) -> str:
        return f"PixelImages({self.samples.name}: {counted(len(self), 'image')} of {self.preprocess.size} px)"

    @property
    def own(self) -> range:
        return range(len(self))

    @property
    def n_views(self) -> int:
        return self.preprocess.n_views

    def __len__(self) -> int:
        return len(self.samples)

    def batch(self, index: Index, view: int = 0) -> Tensor:
        if self.preprocess.drawn(view):
            contents = [self.hashes[i] for i in positions(index, len(self))]
            windows = fixed_windows(contents, view, self.preprocess)
            return fixed_crops(self._resized(index), windows, self.preprocess, self.workers)
        top, left, mirrored = self.preprocess.window(view)
        s = self.preprocess.size
        out = self._resized(index)[:, :, top : top + s, left : left + s]
        return torch.from_numpy(np.ascontiguousarray(out[..., ::-1] if mirrored else out))

    def whole(self, index: Index) -> Tensor:
        return torch.from_numpy(self._resized(index))

    def _resized(self, index: Index) -> np.ndarray:
        """(B, 3, R, R): the whole resized images, not cropped."""
        rows = positions(index, len(self))
        if self.store is not None:
            return self.store[rows]
        side = self.preprocess.stored
        out = np.empty((len(rows), 3, side, side), np.uint8)

        def read(k: int) -> None:
            out[k] = self._decoded_again(int(rows[k]))

        for _ in in_order(read, range(len(rows)), self.workers):
            pass
        return out

    def _decoded_again(self, i: int) -> np.ndarray:
        try:
            digest, pixels = decoded(self.samples, self.preprocess, i)
        except Unreadable as e:
            raise LQFError(f"`{self.samples.ids[i]}` could be read before, and now it {e}") from e
        if digest != self.hashes[i]:
            raise LQFError(
                f"`{self.samples.ids[i]}` is not the image it was when it was first read; "
                "leave files alone during a run, and give data sets without random transforms"
            )
        return pixels


@dataclass(eq=False)
class TensorImages:
    """Normalised tensors, which go to the network unchanged."""

    samples: Samples
    hashes: tuple[str, ...]
    skipped: Skipped = ()

    def __repr__(self) -> str:
        return f"TensorImages({self.samples.name}: {counted(len(self), 'tensor')})"

    @property
    def own(self) -> range:
        return range(len(self))

    @property
    def n_views(self) -> int:
        return 1

    def __len__(self) -> int:
        return len(self.samples)

    def batch(self, index: Index, view: int = 0) -> Tensor:
        if view != 0:
            raise LQFError(f"view {view} was asked for; normalised tensors have one view, 0")
        assert isinstance(self.samples.source, TensorSource)
        return self.samples.source.batch(positions(index, len(self)))

    def whole(self, index: Index) -> Tensor:
        raise LQFError("normalised tensors go to the network unchanged; for random crops give pictures")


def decoded(samples: Samples, preprocess: Preprocess, i: int) -> tuple[str, np.ndarray]:
    """The hash and the resized pixels (3, R, R) of one sample, from one reading; raises `Unreadable`."""
    with FILES.of(file_bytes(samples.source, i)):
        raw = samples.source.raw(i)
        image = to_image(raw, at_least=preprocess.stored)
        return sha256(raw), preprocess.resized(image)
