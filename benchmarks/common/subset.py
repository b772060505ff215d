"""Small problems from a data set: some of its classes, and some training images of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

Labelled = tuple[list[Path], list[str]]


def subset(
    data: Path, classes: int | None, per_class: int | None, generator: np.random.Generator
) -> tuple[Labelled, Labelled]:
    """At most so many random classes of a folder with train/ and test/: some training images, all test images."""
    every = sorted(p.name for p in (data / "train").iterdir() if p.is_dir())
    names = sorted(generator.permutation(every)[:classes].tolist())
    train = pictures(data / "train", names, per_class, generator)
    return train, pictures(data / "test", names, None, generator)


def pictures(folder: Path, names: list[str], most: int | None, generator: np.random.Generator) -> Labelled:
    """Paths and labels of at most so many random images of each class."""
    paths, labels = [], []
    for name in names:
        mine = sorted(p for p in (folder / name).glob("*") if p.is_file())  # a class may have no test images
        chosen = [mine[i] for i in generator.permutation(len(mine))[:most]]
        paths += chosen
        labels += [name] * len(chosen)
    return paths, labels


def linked(images: Labelled, folder: Path) -> Path:
    """A folder of these images by class."""
    for path, label in zip(*images, strict=True):
        (folder / label).mkdir(parents=True, exist_ok=True)
        (folder / label / path.name).symlink_to(path.resolve())
    return folder
