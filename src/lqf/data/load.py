"""One door for every kind of labelled source: `load_samples`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from lqf.data.labels import encode, plain_labels
from lqf.data.labels import limit_per_class as limited
from lqf.data.readers.arrays import array_source, items_source
from lqf.data.readers.dataset import read_dataset
from lqf.data.readers.folder import read_folder
from lqf.data.readers.manifest import read_manifest
from lqf.data.samples import Samples
from lqf.data.sources import FileSource, Source
from lqf.data.table import Table
from lqf.errors import LQFError
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import clean, counted, listed

_KINDS = "a folder CLASS/*.jpg, a .csv manifest, a torch Dataset, an array or tensor, or a list of image paths"


def load_samples(
    source: Any,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    ids: Sequence[str] | None = None,
    classes: Sequence[object] | np.ndarray | None = None,
    limit_per_class: int | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Samples:
    """The table of samples of any source.

    Args:
        source: A folder ``CLASS/…/*.jpg``; a ``.csv`` manifest; a map-style torch `Dataset` of (image, label); uint8
            images or floating-point tensors (N, …) in numpy or torch; a list of image paths, PIL images or arrays; or
            `Samples`.
        labels: One per image, whole numbers or names, for sources that have none of their own.
        sample_weight: One per image, not negative; default 1.
        groups: One per image; images of one group leave together in leave-one-out.
        ids: One per image, for arrays and lists; default "0", "1", … or the paths.
        classes: The classes of a trained model, in its order; other labels are refused.
        limit_per_class: Use at most so many images of each class, chosen by ``seed``.
        seed: Chooses the images of ``limit_per_class``.
        progress: Reports how far a data set is read and which files are not images.

    Returns:
        The samples; `check_trainable` says whether they suffice to train on. Without labels, all are −1.

    Raises:
        LQFError: With a sentence that names what cannot be used.
    """
    table = _table(source, labels, progress)
    where, n = table.source.name, len(table.ids)
    if ids is not None and isinstance(source, str | os.PathLike | Samples):
        raise LQFError(f"{where} has ids of its own (the paths of its images); leave out `ids`")
    y = _column(table, "labels", None if labels is None else plain_labels(labels), table.labels)
    weights = _column(table, "weights", _numbers(sample_weight), table.weights)
    group_names = _column(table, "groups", None if groups is None else plain_labels(groups, "group"), table.groups)
    if classes is None and isinstance(source, Samples):
        classes = source.classes
    names, index = encode([] if y is None else y, classes, table.class_names, where)
    samples = Samples(
        ids=tuple(table.ids if ids is None else map(str, ids)),
        classes=names,
        labels=np.full(n, -1) if y is None else index,
        weights=np.ones(n) if weights is None else weights,
        groups=None if group_names is None else tuple(map(str, group_names)),
        source=table.source,
    )
    if limit_per_class is None:
        return samples
    return samples.select(limited(samples.ids, samples.labels, limit_per_class, seed))


def _table(source: Any, labels: Any, progress: Progress) -> Table:
    if isinstance(source, Samples):
        return _again(source)
    if isinstance(source, str | os.PathLike):
        return _from_path(Path(source).expanduser(), progress)
    if isinstance(source, DataLoader):
        raise LQFError("a DataLoader was given, which shuffles and batches; give its data set, `loader.dataset`")
    if isinstance(source, IterableDataset):
        raise LQFError("an IterableDataset was given; images are read by number here, so give a map-style Dataset")
    if isinstance(source, Dataset):
        return read_dataset(source, labelled=labels is None, progress=progress)
    if not isinstance(source, np.ndarray | Tensor | list | tuple | Image.Image) and hasattr(source, "__array__"):
        source = np.asarray(source)  # a pandas column
    if isinstance(source, np.ndarray) and source.dtype.kind in "UO" and source.ndim == 1:
        source = source.tolist()
    if isinstance(source, np.ndarray | Tensor):
        return _numbered(array_source(source))
    if isinstance(source, list | tuple) and source:
        return _from_list(source, labels, progress)
    given = "an empty list" if isinstance(source, list | tuple) else f"a {type(source).__name__}"
    raise LQFError(f"{given} was given; expected {_KINDS}")


def _from_path(path: Path, progress: Progress) -> Table:
    if path.is_dir():
        return read_folder(path, progress)
    if path.suffix.lower() == ".csv" and path.is_file():
        return read_manifest(path)
    what = "is a file" if path.exists() else "is not there"
    raise LQFError(f"`{path}` {what}; expected a folder CLASS/*.jpg or a .csv manifest")


def _from_list(items: Sequence[Any], labels: Any, progress: Progress) -> Table:
    if all(isinstance(x, str | os.PathLike) for x in items):
        paths = tuple(Path(x).expanduser() for x in items)
        missing = [p for p in paths if not p.is_file()]
        if missing:
            raise LQFError(f"of {counted(len(paths), 'path')} these are not files: {listed(missing)}")
        return Table(FileSource(f"the list of {counted(len(paths), 'path')}", paths), [clean(p) for p in paths])
    if all(isinstance(x, Image.Image | np.ndarray | Tensor) for x in items):
        return _numbered(items_source("the list of images", len(items), items.__getitem__))
    if all(isinstance(x, tuple) and len(x) == 2 for x in items):  # (image, label) pairs: as good as a Dataset
        return read_dataset(cast("Dataset[Any]", items), labelled=labels is None, progress=progress)
    kinds = sorted({type(x).__name__ for x in items})
    raise LQFError(f"a list of {', '.join(kinds)} was given; expected all paths, or all images")


def _numbered(source: Source) -> Table:
    return Table(source, [str(i) for i in range(len(source))])


def _again(samples: Samples) -> Table:
    names = None if (samples.labels < 0).any() else [samples.classes[k] for k in samples.labels]
    return Table(samples.source, samples.ids, names, samples.weights, samples.groups)


def _column(table: Table, what: str, given: Any, own: Any) -> Any:
    """The column that was given, or the source's own; both would leave open which one counts."""
    if given is None:
        return own
    if own is not None:
        raise LQFError(f"{table.source.name} has {what} of its own; leave out the {what} given with it")
    if len(given) != len(table.ids):
        raise LQFError(f"{table.source.name} has {counted(len(table.ids), 'image')} but {len(given)} {what} were given")
    return given


def _numbers(weights: Any) -> np.ndarray | None:
    if weights is None:
        return None
    try:
        array = np.asarray(weights.detach().cpu() if isinstance(weights, Tensor) else weights, dtype=np.float64)
    except (TypeError, ValueError) as e:
        raise LQFError(f"sample weights must be numbers: {e}") from e
    if array.ndim != 1:
        raise LQFError(f"sample weights have shape {array.shape}; give one number per image")
    return array
