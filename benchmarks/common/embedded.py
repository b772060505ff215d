"""Features of a data set's images, made once, and closed-form heads on them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from lqf import LQFClassifier


@dataclass(frozen=True)
class Part:
    """(N, p) features and (N,) class numbers."""

    x: np.ndarray
    y: np.ndarray

    def take(self, rows: np.ndarray) -> Part:
        """Some of them."""
        return Part(self.x[rows], self.y[rows])

    def __len__(self) -> int:
        return len(self.y)


def embedded(data: Path, kept: Path | None = None, **settings: Any) -> tuple[Part, Part]:
    """Training and test images of a folder, as the head of a network sees them, averaged over positions.

    Args:
        data: with train/ and test/.
        kept: folder where features are kept from one run to the next.
        settings: of the network and its images.
    """
    file = None if kept is None else kept / f"{data.name}.npz"
    if file is None or not file.exists():
        base = LQFClassifier(solver="head", pooling="avg", limit_per_class=2, verbose=0, **settings).fit(data / "train")
        made = {}
        for part in ("train", "test"):
            paths = sorted(p for p in (data / part).glob("*/*") if p.is_file())
            made[f"{part}_x"] = base.transform(paths)
            made[f"{part}_y"] = np.searchsorted(base.classes_.astype(str), [p.parent.name for p in paths])
        if file is None:
            return Part(made["train_x"], made["train_y"]), Part(made["test_x"], made["test_y"])
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, **made)
    with np.load(file) as made:
        return Part(made["train_x"], made["train_y"]), Part(made["test_x"], made["test_y"])


def inputs(x: np.ndarray) -> np.ndarray:
    """Features as images of one row."""
    return x[:, None]


def head_on(train: Part, **settings: Any) -> LQFClassifier:
    """The closed-form head on features: what `solver="head"` fits to the images."""
    network = nn.Sequential(OrderedDict(flat=nn.Flatten(), head=nn.Linear(train.x.shape[1], 2)))
    model = LQFClassifier(network, tensors="normalized", solver="head", verbose=0, device="cpu", **settings)
    return model.fit(inputs(train.x), train.y)


def halves(y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two halves of the samples, of every class alike."""
    generator = np.random.default_rng(seed)
    first = np.concatenate(
        [(rows := generator.permutation(np.flatnonzero(y == k)))[: -(-len(rows) // 2)] for k in np.unique(y)]
    )
    return np.sort(first), np.setdiff1d(np.arange(len(y)), first)
