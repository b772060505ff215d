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
        source: what `load_samples` or `load_unlabelled` take.
        classes: of the model: a folder has labels where one of its folders is called like a class.
    """
    if isinstance(source, str | os.PathLike) and (path := Path(source).expanduser()).is_dir():
        return any((path / name).is_dir() for name in classes)
    if column_of_labels(source):
        return True
    known = str | os.PathLike | Samples | np.ndarray | Tensor | Image.Image
    if isinstance(source, known) or hasattr(source, "__array__"):
        return False
    if isinstance(source, list | tuple):
        return bool(source) and all(isinstance(item, tuple | Mapping) for item in source)
    return not is_frame(source)  # a data set, of which every item has a label


def column_of_labels(source: Any) -> bool:
    """Whether a manifest or a data frame has a column of labels, or samples have labels."""
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        return path.suffix.lower() == ".csv" and path.is_file() and "label" in columns_of(path)
    if isinstance(source, Samples):
        return len(source) > 0 and bool((source.labels >= 0).all())
    return is_frame(source) and "label" in [str(name).strip().lower() for name in source.columns]
