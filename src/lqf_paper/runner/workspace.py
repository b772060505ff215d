"""What all cells of a run share: network, pixels, device; and the data sets, opened once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lqf.backbones import Backbone, load_backbone
from lqf.data import Images, Preprocess, Samples, check_trainable, load_samples, open_images, select_images
from lqf.data.labels import limit_per_class
from lqf.errors import LQFError
from lqf.training.finetune import Precision
from lqf.utils.progress import SILENT, Progress
from lqf_paper.runner.group_cache import GroupCache


@dataclass
class Workspace:
    """Network and pixels, the same for every method.

    Images are resized to a square of 256/224 of the input's side, as the paper does, and cropped from it.

    Attributes:
        backbone: as `load_backbone` takes it.
        weights: its weights file.
        device: where to compute.
        size: side of the network's input; None: the backbone's own.
        classes: at most so many classes of a data set, evenly spread; None: all.
        per_class: at most so many training images of a class; None: all.
        test_per_class: the same for test images.
        progress: where to report.
        leaky_weights: its weights file with leaky activations, as `lqf adapt` writes one; None: ``weights``.
        cache: what cells of the same images and network share (`lqf_paper.runner.group_cache`).
    """

    backbone: str | nn.Module
    weights: str | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    size: int | None = None
    classes: int | None = None
    per_class: int | None = None
    test_per_class: int | None = None
    progress: Progress = SILENT
    leaky_weights: str | None = None
    cache: GroupCache = field(default_factory=GroupCache, repr=False)
    _loaded: dict[bool, Backbone] = field(default_factory=dict, repr=False)

    def network(self, *, leaky: bool) -> Backbone:
        """The pretrained network, with leaky activations (for LQF) or its own (for everything else).

        It is shared: copy what you change.
        """
        if leaky not in self._loaded:
            self._loaded[leaky] = load_backbone(self.backbone, weights=self.weights_of(leaky), leaky=leaky)
        return self._loaded[leaky]

    def weights_of(self, leaky: bool) -> str | None:
        """The weights file of the network with these activations."""
        return self.leaky_weights if leaky and self.leaky_weights is not None else self.weights

    @cached_property
    def preprocess(self) -> Preprocess:
        """Pixels to inputs."""
        net = self.network(leaky=False)
        return Preprocess(
            size=self.size or net.size,
            interpolation=net.interpolation,
            mean=net.mean,
            std=net.std,
            keep_aspect=False,
        )

    @property
    def precision(self) -> Precision:
        """Of ordinary fine-tuning: bf16 on a GPU."""
        return "bf16" if self.device.type == "cuda" else "float32"

    def describe(self) -> dict[str, Any]:
        """What of it a cell's result depends on."""
        net = self.network(leaky=False)
        adapted = {"leaky_state_sha256": self.network(leaky=True).spec["state_sha256"]} if self.leaky_weights else {}
        return {
            **adapted,
            "backbone": net.name,
            "state_sha256": net.spec["state_sha256"],
            "preprocess": self.preprocess.to_dict(),
            "device": self.device.type,
            "precision": self.precision,
        }


@dataclass
class Task:
    """A data set: a folder with `train` and `test`.

    Attributes:
        name: the folder's.
        workspace: network and pixels.
        train: training images, opened.
        test: test images, opened.
    """

    name: str
    workspace: Workspace
    train: Images
    test: Images

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.train.samples.classes

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over the hashes and labels of all images, in order."""
        contents = [[p.hashes, p.samples.ids, p.samples.labels.tolist()] for p in (self.train, self.test)]
        return hashlib.sha256(json.dumps([contents, self.classes]).encode()).hexdigest()

    def shots(self, k: int | None, seed: int = 0) -> Task:
        """The same task with k training images of every class (all where it has fewer); None: as it is."""
        if k is None:
            return self
        samples = self.train.samples
        return self.some(limit_per_class(samples.ids, samples.labels, k, seed))

    def some(self, rows: Sequence[int] | np.ndarray) -> Task:
        """The same task with some of the training images, at ascending positions; the classes stay."""
        return Task(self.name, self.workspace, select_images(self.train, np.asarray(rows)), self.test)

    def describe(self) -> dict[str, Any]:
        """For the results."""
        return {
            "name": self.name,
            "classes": len(self.classes),
            "train": len(self.train),
            "test": len(self.test),
            "fingerprint": self.fingerprint,
        }


def open_task(folder: str | Path, workspace: Workspace) -> Task:
    """Read `folder`/train and `folder`/test."""
    folder = Path(folder)
    for part in ("train", "test"):
        if not (folder / part).is_dir():
            raise LQFError(f"`{folder}` has no folder `{part}`; give folders with `train` and `test`, each CLASS/*.jpg")
    train = load_samples(folder / "train", strict=True, progress=workspace.progress)
    test = load_samples(folder / "test", classes=train.classes, strict=True, progress=workspace.progress)
    names = (
        tuple(train.classes[k * len(train.classes) // n] for k in range(n)) if (n := _kept(train, workspace)) else None
    )
    train, test = _part(train, names, workspace.per_class), _part(test, names, workspace.test_per_class)
    check_trainable(train)
    opened = [open_images(s, workspace.preprocess, progress=workspace.progress) for s in (train, test)]
    check_trainable(opened[0].samples)
    return Task(folder.resolve().name, workspace, *opened)


def _kept(samples: Samples, workspace: Workspace) -> int | None:
    """How many classes are kept; None: all."""
    return workspace.classes if workspace.classes is not None and workspace.classes < len(samples.classes) else None


def _part(samples: Samples, names: tuple[str, ...] | None, limit: int | None) -> Samples:
    """The images of some classes, at most ``limit`` of each."""
    if names is not None:
        place = np.array([names.index(c) if c in names else -1 for c in samples.classes])
        kept = samples.select(place[samples.labels] >= 0)
        samples = replace(kept, classes=names, labels=place[kept.labels])
    if limit is None:
        return samples
    return samples.select(limit_per_class(samples.ids, samples.labels, limit, 0))
