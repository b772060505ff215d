"""Small tasks from a data set's training images: a few are learned from, the rest of their classes are held out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common.maps import CPU, MapImages, last_stage, pass_images
from common.subset import pictures
from lqf.backbones import Backbone, load_backbone
from lqf.fitting import Context, TrainingSet
from lqf.fitting.fitted_model import FittedModel
from lqf.settings import Settings

FEW = 10
"""Classes of a task at most, where its images suffice for so few."""


@dataclass(frozen=True)
class Task:
    """Images to learn from, and images of the same classes to be judged by.

    Attributes:
        train: to learn from.
        held: to be judged by.
        backbone: the network behind which both are.
    """

    train: MapImages
    held: MapImages
    backbone: Backbone

    @property
    def classes(self) -> int:
        """How many."""
        return len(self.train.samples.classes)

    @property
    def labels(self) -> Tensor:
        """(M,) of the images held out."""
        return torch.tensor(self.held.samples.labels)

    def data(self, seed: int = 0) -> TrainingSet:
        """As `lqf fit --effort quick` would begin with it."""
        context = Context(Settings(effort="quick", seed=seed), CPU)
        return TrainingSet.of(self.train, self.train.preprocess, context)

    def outputs(self, model: FittedModel) -> Tensor:
        """(M, C) of the images held out, by a model of the others, in its views."""
        held = self.held.with_views(model.preprocess)
        return model.outputs(held, device=CPU, batch_size=16).double()


class Pool:
    """Images of a folder CLASS/*.jpg, passed through all but the last stage of EfficientNet-Lite0.

    Args:
        folder: of the classes.
        size: of the pictures, in pixels.
        views: in which they can be shown.
        images: about so many are taken, from classes in random order; None: all.
        per_class: of each class, or more where there are few classes.
        seed: chooses classes and images.
    """

    def __init__(
        self, folder: Path, size: int, views: str, images: int | None = None, per_class: int = 30, seed: int = 0
    ):
        backbone = load_backbone("efficientnet_lite0")
        generator = np.random.default_rng(seed)
        names = generator.permutation(sorted(p.name for p in folder.iterdir() if p.is_dir())).tolist()
        most = None if images is None else max(per_class, images // len(names))
        paths: list[Path] = []
        labels: list[str] = []
        for name in names:
            if images is None or len(paths) + per_class / 2 <= images:
                found = pictures(folder, [name], most, generator)
                paths, labels = paths + found[0], labels + found[1]
        self.images = pass_images(backbone, backbone.preprocess(size=size, views=views), paths, labels)
        self.backbone = last_stage(backbone)

    @property
    def counts(self) -> dict[str, int]:
        """Images of every class."""
        s = self.images.samples
        return dict(zip(s.classes, s.counts.tolist(), strict=True))

    def task(self, images: int, generator: np.random.Generator) -> Task:
        """About ``images`` of two to `FEW` random classes, or of more where these are small; as many stay behind."""
        counts = self.counts
        enough = {c: [n for n, k in counts.items() if k >= 2 * (images // c)] for c in range(2, len(counts) + 1)}
        possible = [c for c, names in enough.items() if len(names) >= c and images // c >= 2]
        few = [c for c in possible if c <= FEW] or possible[:1]
        if not few:  # all classes, and half of the smallest
            return self.split(list(counts), min(images // len(counts), min(counts.values()) // 2), generator)
        c = int(generator.choice(few))
        return self.split(generator.permutation(enough[c])[:c].tolist(), images // c, generator)

    def split(self, names: list[str], per_class: int, generator: np.random.Generator) -> Task:
        """Learn from so many images of each of these classes."""
        parts: list[list[int]] = [[], []]
        for name in names:
            mine = generator.permutation(self.rows(name)).tolist()
            parts[0] += mine[:per_class]
            parts[1] += mine[per_class:]
        train, held = (self.images.take(np.array(p), sorted(names)) for p in parts)
        return Task(train, held, self.backbone)

    def of_classes(self, classes: Iterable[str]) -> MapImages:
        """All images of a task's classes."""
        names = list(classes)
        return self.images.take(np.concatenate([self.rows(name) for name in names]), names)

    def rows(self, name: str) -> np.ndarray:
        """Positions of the images of a class."""
        s = self.images.samples
        return np.flatnonzero(s.labels == s.classes.index(name)) if name in s.classes else np.zeros(0, int)


def mean(values: Iterable[float]) -> dict[str, float | None]:
    """Mean over tasks, and its standard error as if they had no images in common; None for one task."""
    v = np.array(list(values), float)
    error = round(float(v.std(ddof=1)) / math.sqrt(len(v)), 5) if len(v) > 1 else None
    return {"mean": round(float(v.mean()), 5), "standard_error": error}
