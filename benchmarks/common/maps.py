"""Images behind the frozen part of a network: what comes out of it is computed once, and many small fits go on there.

A fit of heads needs nothing else of an image than the map before the last stage, in each of its views. The images and
the network that are made here stand for the real ones: the library's own code fits and predicts, in a small fraction of
the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lqf.backbones import Backbone
from lqf.backbones.prefix import split_at
from lqf.data import Preprocess, load_samples, open_images
from lqf.data.pixels import PixelImages
from lqf.data.samples import Index, positions
from lqf.linear.inputs import Inputs

STAGE = "final"
"""The last stage of EfficientNet-Lite0: everything before it is computed once."""
CPU = torch.device("cpu")


@dataclass(eq=False)
class MapImages(PixelImages):
    """Pictures of which the maps (N, V, c, h, w) in all views are known."""

    maps: Tensor = field(repr=False)

    def batch(self, index: Index, view: int = 0) -> Tensor:
        return self.maps[torch.from_numpy(positions(index, len(self))), view]

    def with_views(self, preprocess: Preprocess) -> MapImages:
        """In other views, which must be among those that are known."""
        return replace(self, preprocess=preprocess)

    def take(self, rows: np.ndarray, classes: list[str]) -> MapImages:
        """Some of them, as a task with these classes."""
        s = self.samples.select(rows)
        labels = np.array([classes.index(s.classes[k]) for k in s.labels])
        samples = replace(s, classes=tuple(classes), labels=labels)
        hashes = tuple(self.hashes[i] for i in rows)
        return MapImages(samples, self.preprocess, hashes, (), 1, None, self.maps[torch.from_numpy(rows)])


def last_stage(backbone: Backbone) -> Backbone:
    """The network from `STAGE` on."""
    suffix = split_at(backbone.body, STAGE)[1]
    return replace(backbone, body=suffix, stages=(STAGE,))


def pass_images(backbone: Backbone, preprocess: Preprocess, paths: list[Path], labels: list[str]) -> MapImages:
    """The pictures in the views of ``preprocess``, through all stages before the last."""
    images = open_images(load_samples(paths, labels), preprocess, workers=1)
    assert isinstance(images, PixelImages)
    prefix = split_at(backbone.body, STAGE)[0]
    inputs = Inputs(images, preprocess, device=CPU, dtype=torch.float32, batch_size=16, prefix=prefix)
    maps: Tensor | None = None
    for rows, x in inputs.batches():
        maps = x.new_empty(len(inputs), *x.shape[1:]) if maps is None else maps
        maps[rows] = x
    assert maps is not None
    maps = maps.unflatten(0, (len(images), -1))
    preprocess = replace(preprocess, views="none")  # a fit begins with one view
    return MapImages(images.samples, preprocess, images.hashes, (), 1, None, maps)
