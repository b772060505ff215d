"""Fixed views of opened images as rows on a device.

On a GPU every image is copied once, resized and whole, and its views are cut there. On a CPU Pillow cuts them: its
loops leave out weights that are zero, and are ten times as fast or more as matrix products there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lqf.data.crops import fixed_windows
from lqf.data.images import Images
from lqf.data.parts import has_pixels, preprocess_of
from lqf.data.preprocess import Preprocess
from lqf.data.resample import resample


def rows_on(device: torch.device, images: Images, sample: Tensor, view: Tensor) -> Tensor:
    """Row k is view ``view[k]`` of sample ``sample[k]``: uint8 (B, 3, s, s), or tensors as they were given."""
    if device.type != "cuda" or not has_pixels(images):
        return _by_view(view, lambda mine, v: images.batch(sample[mine], v)).to(device, non_blocking=True)
    return cut_on(device, images, sample, view)


def cut_on(device: torch.device, images: Images, sample: Tensor, view: Tensor) -> Tensor:
    """`rows_on` of pictures, cut by the device."""
    preprocess = preprocess_of(images)
    assert preprocess is not None
    some, place = sample.unique(return_inverse=True)
    whole = images.whole(some).to(device)  # (N, 3, R, R)

    def cut(mine: Tensor, v: int) -> Tensor:
        hashes = [images.hashes[i] for i in sample[mine].tolist()]
        return cut_view(whole[place[mine].to(device)], hashes, v, preprocess)

    return _by_view(view, cut)


def cut_view(whole: Tensor, hashes: Sequence[str], view: int, preprocess: Preprocess) -> Tensor:
    """One fixed view (B, 3, s, s) of resized images (B, 3, R, R), on their device."""
    s = preprocess.size
    if preprocess.drawn(view):
        windows = fixed_windows(hashes, view, preprocess).to(whole.device)
        return resample(whole, windows, s, preprocess.interpolation)
    top, left, mirrored = preprocess.window(view)
    out = whole[:, :, top : top + s, left : left + s]
    return out.flip(-1) if mirrored else out


def _by_view(view: Tensor, cut: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Rows put together from those of every view: ``cut(mine, v)`` gives the rows ``mine``, all of them of view v."""
    views = view.unique().tolist() or [0]
    if len(views) == 1:
        return cut(torch.arange(len(view)), views[0])
    out: Tensor | None = None
    for v in views:
        mine = (view == v).nonzero()[:, 0]
        part = cut(mine, v)
        out = part.new_empty((len(view), *part.shape[1:])) if out is None else out
        out[mine.to(out.device)] = part
    assert out is not None
    return out
