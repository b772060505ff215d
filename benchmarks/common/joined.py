"""Images of one or several data folders together, so many of them, as labelled paths."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.subset import Labelled, pictures
from lqf.fitting.within_time import spread_over_classes

FIRST, OTHERS = "first", "others"
"""Classes of images that are labelled by whether they are of the first folder."""


@dataclass(frozen=True)
class Joined:
    """Labelled paths.

    Attributes:
        train, test: the images.
        what: where they come from, in words.
    """

    train: Labelled
    test: Labelled
    what: str

    def manifest(self, folder: Path) -> Path:
        """The training images as a table that `fit` takes."""
        path = folder / "train.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(
                [("path", "label"), *zip(map(Path.absolute, self.train[0]), self.train[1], strict=True)]
            )
        return path

    def asked(self, n: int) -> list[Path]:
        """So many test images, evenly from all classes."""
        paths = self.test[0]
        return [paths[k * len(paths) // n] for k in range(min(n, len(paths)))]


def joined(folders: Sequence[Path], *, n: int | None, classes: int | None, by_folder: bool, seed: int) -> Joined:
    """Images of folders with train/ and test/.

    Args:
        folders: of the data.
        n: training images, from all classes alike; None: all.
        classes: so many random ones; None: all.
        by_folder: whether the label is only whether an image is of the first folder.
        seed: chooses classes and images.
    """
    generator = np.random.default_rng(seed)
    every = [(folder, p.name) for folder in folders for p in sorted((folder / "train").iterdir()) if p.is_dir()]
    chosen = sorted(generator.permutation(len(every))[:classes].tolist())
    parts: dict[str, Labelled] = {}
    for part in ("train", "test"):
        paths, labels = [], []
        for folder, name in (every[i] for i in chosen):
            mine = pictures(folder / part, [name], None, generator)[0] if (folder / part / name).is_dir() else []
            paths += sorted(mine)
            if by_folder:
                labels += [FIRST if folder == folders[0] else OTHERS] * len(mine)
            else:
                labels += [f"{folder.name}-{name}" if len(folders) > 1 else name] * len(mine)
        parts[part] = paths, labels
    paths, labels = parts["train"]
    rows = sorted(spread_over_classes(np.array(labels), seed)[:n].tolist())
    few = [paths[i] for i in rows], [labels[i] for i in rows]
    return Joined(few, parts["test"], _said(folders, len(rows), len(set(few[1])), by_folder))


def _said(folders: Sequence[Path], n: int, classes: int, by_folder: bool) -> str:
    names = " + ".join(folder.name for folder in folders)
    labels = f"labelled by whether they are of {folders[0].name}" if by_folder else f"{classes} classes"
    return f"{n:,} training images of {names}, {labels}"
