"""The training data of a fitted model, opened again and checked against what it was fitted on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lqf.data import Images, Samples, load_samples, open_known_shard
from lqf.data.joined import join_samples
from lqf.errors import LQFError
from lqf.fitting.fitted_model import TrainingTable, check_not_a_sum
from lqf.fitting.stack import Model
from lqf.runtime.distributed import ALONE, World
from lqf.utils import naming
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import counted, listed


def open_training(
    fitted: Model, train: Any = None, y: Any = None, progress: Progress = SILENT, world: World = ALONE
) -> Images:
    """The images the model was fitted on, in its order, with its labels, weights and groups.

    Their contents are checked at once, and their pixels read when they are needed.

    Args:
        fitted: the model.
        train: where the data are now; None: where they were at the fit.
        y: labels of ``train``, only to be compared with those of the fit.
        progress: called after every image.
        world: the processes that share them.

    Raises:
        LQFError: naming the files that are missing or have changed.
    """
    check_not_a_sum(fitted.report)
    if fitted.report.not_the_fit:
        raise LQFError(f"{fitted.report.not_the_fit}; ask the model that it was made from")
    table = fitted.train
    parts = [
        _as_fitted(_load(source, y if source is train else None, fitted, progress), table.select(rows), fitted.classes)
        for source, rows in _by_source(table, train)
    ]
    samples, *others = parts
    for other in others:
        samples = join_samples(samples, other)
    if others:
        place = {name: i for i, name in enumerate(samples.ids)}
        samples = samples.select([place[name] for name in table.ids])
    return open_known_shard(samples, fitted.trained_on, table.hashes, world, progress=progress)


def _by_source(table: TrainingTable, train: Any) -> list[tuple[Any, np.ndarray]]:
    """Where the samples are, and which are there: ``train`` has those of the fit, and all that were in memory."""
    places: list[Any] = [table.source, *table.added]
    if train is not None:
        places = [train if k == 0 or place is None else place for k, place in enumerate(places)]
    first = [next(j for j, other in enumerate(places) if _same(place, other)) for place in places]
    of_sample = np.array(first)[table.origins]
    return [(_given(places[k]), np.flatnonzero(of_sample == k)) for k in np.unique(of_sample).tolist()]


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, str | Path) and isinstance(b, str | Path) and Path(a) == Path(b))


def _given(source: Any) -> Any:
    if source is None:
        raise LQFError(
            "the model was fitted on data in memory, such as arrays, which it does not keep; "
            f"{naming.either('in Python, ', '')}give them again with train=, e.g. model.audit(train=X)"
        )
    return source


def _load(source: Any, y: Any, fitted: Model, progress: Progress) -> Samples:
    gone = isinstance(source, str) and not Path(source).expanduser().exists()
    if gone and source in (fitted.train.source, *fitted.train.added):
        seen = "" if Path(source).expanduser().is_absolute() else f" (seen from `{Path.cwd()}`)"
        raise LQFError(
            f"the training data are no longer at `{source}`{seen}; say where they are now with "
            f"{naming.either('--train, a folder or a manifest', 'train=')}"
        )
    return load_samples(source, y, tensors=fitted.setup.tensors, progress=progress)


def _as_fitted(samples: Samples, table: TrainingTable, classes: tuple[str, ...]) -> Samples:
    """The samples of the fit, in its order."""
    where = {name: i for i, name in enumerate(samples.ids)}
    missing = [name for name in table.ids if name not in where]
    if len(missing) == len(table.ids):
        was = f"which was `{table.source}`" if table.source else "or the arrays: in Python, with train="
        raise LQFError(
            f"{samples.name} has none of the {counted(len(missing), 'image')} that the model was fitted on, "
            f"{listed(missing, 3)}; give the folder or the manifest of that fit, {was}"
        )
    if missing:
        raise LQFError(
            f"{counted(len(missing), 'image')} that the model was fitted on cannot be found in {samples.name}: "
            f"{listed(missing)}; restore them, or fit again"
        )
    found = samples.select(np.array([where[name] for name in table.ids]))
    now = [found.classes[k] if k >= 0 else None for k in found.labels]
    other = [i for i, name, k in zip(table.ids, now, table.labels, strict=True) if name not in (None, classes[k])]
    if other:
        raise LQFError(
            f"the labels of {listed(other)} in {samples.name} are not those the model was fitted with; "
            "restore them, or fit again"
        )
    return replace(found, classes=classes, labels=table.labels, weights=table.weights, groups=table.groups)
