"""How an image becomes the network's input: resize, crop (one fixed view or several), normalise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lqf.errors import LQFError
from lqf.settings import NAMED_VIEWS, ONE_OR_MORE, SHARE, view_count

Interpolation = Literal["bilinear", "bicubic"]
Triple = tuple[float, float, float]

IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)

ANY_AREA, SOME_RATIO = 0.08, 4 / 3
"""Least share of the image that a random resized crop shows, and most by which one of its sides is the longer."""
LATER = ("crop_area", "crop_ratio")
"""Fields that came after the first results were stored. Keys of results and checkpoints are made from `to_dict`, which
leaves them out at their defaults: those of earlier versions are still found."""
RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@dataclass(frozen=True)
class Preprocess:
    """Resize to R × R, cut out ``size`` × ``size``, normalise. The paper: R = 256, ``size`` = 224, bilinear.

    Attributes:
        size: side of what the network sees.
        resize: R; default round(size · 256 / 224).
        keep_aspect: False (paper): the whole image is resized to R × R. True: its short side to R, and the central
            square is kept.
        interpolation: resampling filter (both widen when shrinking, so nothing aliases).
        mean: per channel, of pixels in [0, 1].
        std: per channel, of pixels in [0, 1].
        views: the fixed crops of an image, all of which are used: only the centre; the centre and its mirror image;
            centre and four corners; those five and their mirror images; "resized", the centre, its mirror image and two
            random resized crops, drawn from the image's contents; "crops8", likewise with six crops of ``crop_area``
            and ``crop_ratio`` (any number from 3 on). View 0 is always the centre.
        crop_area: least share of the image that a drawn crop of "crops8" shows; the share is uniform from there to 1.
        crop_ratio: r, the most by which such a crop is longer in one direction than in the other; its ratio is
            log-uniform in [1/r, r].
    """

    size: int = 224
    resize: int | None = None
    keep_aspect: bool = False
    interpolation: Interpolation = "bilinear"
    mean: Triple = IMAGENET_MEAN
    std: Triple = IMAGENET_STD
    views: str = "none"
    crop_area: float = 0.25
    crop_ratio: float = SOME_RATIO

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            object.__setattr__(self, name, _triple(name, getattr(self, name)))
        if min(self.std) <= 0:
            raise LQFError(f"std is {self.std}; it must be positive")
        _check_interpolation(self.interpolation)
        view_count(self.views)
        for name, rule in (("crop_area", SHARE), ("crop_ratio", ONE_OR_MORE)):
            value = getattr(self, name)
            if not rule.allows(value):
                raise LQFError(f"{name} is {value!r}; {rule.sentence}")
            object.__setattr__(self, name, float(value))
        for name in ("size", "resize"):
            value = getattr(self, name)
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if whole and value >= 1:
                object.__setattr__(self, name, int(value))  # numpy's numbers are not for JSON
            elif name == "size" or value is not None:
                raise LQFError(f"{name} is {value!r}; give a number of pixels, 1 or more")
        if self.stored < self.size:
            raise LQFError(
                f"resize is {self.resize}, less than size {self.size}; a crop cannot be larger than the image"
            )
        if self.views in ("five", "ten") and self.stored == self.size:
            raise LQFError(f"views {self.views!r} need a resize above size {self.size}; all crops would be the same")

    @property
    def stored(self) -> int:
        """R, the side of the resized image before it is cropped."""
        return round(self.size * 256 / 224) if self.resize is None else self.resize

    @property
    def n_views(self) -> int:
        """Number of fixed views of an image."""
        return view_count(self.views)

    def resized(self, image: Image.Image) -> np.ndarray:
        """An RGB image as (3, R, R) uint8, not yet cropped."""
        side, filter = self.stored, RESAMPLING[self.interpolation]
        if not self.keep_aspect:
            square = image.resize((side, side), filter)
        else:
            image = _without_far_ends(image)
            short = min(image.size)
            w, h = (max(side, side * length // short) for length in image.size)
            left, top = _middle(w, side), _middle(h, side)
            square = image.resize((w, h), filter).crop((left, top, left + side, top + side))
        return np.asarray(square).transpose(2, 0, 1)

    def window(self, view: int) -> tuple[int, int, bool]:
        """Top, left and whether it is mirrored, of a view inside the R × R image that is the same for all images."""
        if not 0 <= view < self.n_views:
            raise LQFError(f"view {view} of views {self.views!r} was asked for; there are {self.n_views}, from 0")
        per_side = 5 if self.views in ("five", "ten") else 1
        middle, end = _middle(self.stored, self.size), self.stored - self.size
        corners = [(middle, middle), (0, 0), (0, end), (end, 0), (end, end)]
        return (*corners[view % per_side], view >= per_side)

    def drawn(self, view: int) -> bool:
        """Whether a view is a random resized crop (`lqf.data.crops.windows_by_contents`) and has no `window`."""
        return self._draws and 2 <= view < self.n_views

    @property
    def drawn_area(self) -> float:
        """Least share of the image that a drawn view shows."""
        return ANY_AREA if self.views == "resized" else self.crop_area

    @property
    def drawn_ratio(self) -> float:
        """Most by which a drawn view is longer in one direction than in the other."""
        return SOME_RATIO if self.views == "resized" else self.crop_ratio

    @property
    def _draws(self) -> bool:
        return self.views not in NAMED_VIEWS or self.views == "resized"

    def to_dict(self) -> dict[str, Any]:
        """For JSON; without `LATER` fields that have their defaults."""
        usual = {f.name for f in fields(self) if f.name in LATER and getattr(self, f.name) == f.default}
        values = asdict(self) | {"mean": list(self.mean), "std": list(self.std)}
        return {name: value for name, value in values.items() if name not in usual}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preprocess:
        """The inverse of `to_dict`."""
        unknown = sorted(set(values) - {f.name for f in fields(cls)})
        if unknown:
            raise LQFError(f"preprocessing has no settings called {', '.join(unknown)}")
        return cls(**values)


def normalize(batch: Tensor, preprocess: Preprocess, dtype: torch.dtype) -> Tensor:
    """(x/255 − mean)/std of uint8 images (B, 3, s, s), on their device; floating-point tensors are only cast.

    Narrow types are reached from float32, so that their rounding happens once.
    """
    if batch.dtype != torch.uint8:
        return batch.to(dtype)
    work = torch.float64 if dtype == torch.float64 else torch.float32
    mean, std = (_per_channel(tuple(v), work, batch.device) for v in (preprocess.mean, preprocess.std))
    return standardize(batch, mean, std).to(dtype)


def standardize(batch: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(x/255 − mean)/std in the type of mean and std, (3, 1, 1)."""
    return batch.to(mean.dtype).div_(255).sub_(mean).div_(std)


@lru_cache(maxsize=32)
def _per_channel(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """(3, 1, 1), kept: a GPU waits for the host while numbers are sent to it, and cannot record that."""
    return torch.tensor(values, dtype=dtype, device=device)[:, None, None]


def _without_far_ends(image: Image.Image) -> Image.Image:
    """The middle of a very long image: a line of 1 × 10,000 pixels, enlarged to height R, would fill the memory."""
    (w, h), most = image.size, 4 * min(image.size)
    if max(w, h) <= most:
        return image
    left, top = _middle(w, min(w, most)), _middle(h, min(h, most))
    return image.crop((left, top, left + min(w, most), top + min(h, most)))


def _middle(long: int, short: int) -> int:
    return round((long - short) / 2)  # as torchvision's CenterCrop rounds


def _triple(name: str, values: Any) -> Triple:
    try:
        triple = tuple(float(v) for v in values)
    except (TypeError, ValueError):
        triple = ()
    if len(triple) != 3 or not all(math.isfinite(v) for v in triple):
        raise LQFError(f"{name} is {values!r}; give three numbers, for red, green and blue")
    return triple


def _check_interpolation(value: str) -> None:
    if value not in get_args(Interpolation):
        raise LQFError(f"interpolation is {value!r}; choose {', '.join(get_args(Interpolation))}")
