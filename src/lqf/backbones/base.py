"""A backbone: a pretrained network without its classifier, and what is needed to feed it and to build it again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from lqf.backbones.activations import make_leaky
from lqf.backbones.prefix import stages
from lqf.backbones.weights import state_sha256
from lqf.data.preprocess import IMAGENET_MEAN, IMAGENET_STD, Interpolation, Preprocess

RGB = tuple[float, float, float]


@dataclass(frozen=True)
class Input:
    """What a network was trained to see."""

    mean: RGB = IMAGENET_MEAN
    std: RGB = IMAGENET_STD
    interpolation: Interpolation = "bilinear"
    size: int = 224


@dataclass
class Backbone:
    """A network x -> z with its input format.

    Attributes:
        name: as `load_backbone` takes it.
        body: normalised images (B, 3, s, s) -> features (B, p); in eval mode, no weight requires a gradient, and no
            operation works in place.
        features: p.
        mean: subtracted from RGB values in [0, 1].
        std: they are divided by it.
        interpolation: "bilinear" or "bicubic".
        size: pixels, as trained.
        stages: names at which linearisation may start, in forward order (see `lqf.backbones.prefix`); empty where the
            network cannot be cut.
        spec: JSON; `rebuild_backbone` makes the same backbone from it, or says why it cannot.
        classifier: the layer that was on top of the features, where there was one.
        head: the classifier's name in a weights file.
    """

    name: str
    body: nn.Module
    features: int
    mean: RGB
    std: RGB
    interpolation: Interpolation
    size: int
    stages: tuple[str, ...]
    spec: dict[str, Any]
    classifier: nn.Linear | None = None
    head: str = field(default="classifier", repr=False)

    def preprocess(
        self,
        *,
        size: int | None = None,
        squash: bool = False,
        views: str = "none",
        crop_area: float = Preprocess.crop_area,
        crop_ratio: float = Preprocess.crop_ratio,
    ) -> Preprocess:
        """Pixels to what it was trained to see.

        Args:
            size: side of its input; None: its own.
            squash: resize images to a square instead of cutting the middle out.
            views: fixed views of every image.
            crop_area: least share of the image that a drawn crop shows.
            crop_ratio: most by which it is longer in one direction than in the other.
        """
        return Preprocess(
            size=self.size if size is None else size,
            interpolation=self.interpolation,
            mean=self.mean,
            std=self.std,
            keep_aspect=not squash,
            views=views,
            crop_area=crop_area,
            crop_ratio=crop_ratio,
        )


def make_backbone(
    name: str,
    body: nn.Module,
    classifier: nn.Linear | None,
    features: int,
    fed: Input,
    origin: dict[str, Any],
    *,
    leaky: bool,
    head: str = "classifier",
) -> Backbone:
    """Freeze the network, swap its activations if asked, and write down what it is."""
    body = freeze(make_leaky(body) if leaky else body)
    if classifier is not None:
        freeze(classifier)
    spec = {"name": name, **origin, "leaky": leaky, "state_sha256": state_sha256(body)}
    given = (fed.mean, fed.std, fed.interpolation, fed.size)
    return Backbone(name, body, features, *given, stages(body), spec, classifier, head)


def freeze(module: nn.Module) -> nn.Module:
    """Eval mode (batch normalisation becomes a fixed affine map), no gradients by default, nothing in place."""
    for m in module.modules():
        if getattr(m, "inplace", False) is True:
            m.inplace = False  # type: ignore[assignment]  # forward mode needs the value before the activation
    return module.eval().requires_grad_(False)
