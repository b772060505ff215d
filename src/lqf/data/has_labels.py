"""Whether a source says what its images show."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from lqf.data.readers.frame import is_frame
from lqf.data.readers.manifest import columns_of
from lqf.data.samples import Samples


def has_labels(source: Any, classes: Collection[str]) -> bool:
    """Whether labels can be read with the images, which need not have any: they are only asked about.

    Args:
        source: What `load_samples` or `load_unlabelled` take.
        classes: Of the model: a folder has labels where one of its folders is called like a class.
    """
    if isinstance(source, str | os.PathLike):
        return _of_path(Path(source).expanduser(), classes)
    if isinstance(source, Samples):
        return bool((source.labels >= 0).all())
    if isinstance(source, np.ndarray | Tensor | Image.Image) or hasattr(source, "__array__"):
        return is_frame(source) and "label" in [str(name).strip().lower() for name in source.columns]
    if isinstance(source, list | tuple):
        return bool(source) and all(isinstance(item, tuple | Mapping) for item in source)
    return True  # a data set, of which every item has a label


def _of_path(path: Path, classes: Collection[str]) -> bool:
    if path.suffix.lower() == ".csv" and path.is_file():
        return "label" in columns_of(path)
    return path.is_dir() and any((path / name).is_dir() for name in classes)
