"""Which samples are meant, and what cannot be: found out before anything is done."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lqf.data.readers.manifest import column_of
from lqf.errors import LQFError
from lqf.fitting import TrainingTable
from lqf.fitting.stack import Model
from lqf.utils import naming
from lqf.utils.text import listed


def chosen(
    model: Model, ids: Iterable[str | int] | None = None, group: str | None = None, where: tuple[str, Any] | None = None
) -> np.ndarray:
    """(N,) mask of the samples that are meant; LQFError where none is, or where the rest is no training set.

    Args:
        model: fitted.
        ids: of samples, or their numbers.
        group: all samples of it.
        where: a column and the value that is looked for: label, group, weight, id, sha256, or any column of the
            manifest that the model was fitted on.
    """
    given = [n for n, v in (("ids", ids), ("group", group), ("where", where)) if v is not None]
    if len(given) != 1:
        ways = ", ".join(naming.name(n) for n in ("ids", "group", "where"))
        what = f"{' and '.join(map(naming.name, given))} were given" if given else "nothing was said"
        raise LQFError(f"which samples to forget is said in one way, by one of {ways}; {what}")
    if ids is not None:
        gone = _by_ids(model.train, ids)
    elif group is not None:
        gone = _by_group(model.train, str(group))
    else:
        assert where is not None
        gone = _by_column(model, *where)
    check_rest(model, gone)
    return gone


def check_rest(model: Model, gone: np.ndarray) -> None:
    """LQFError where a class would lose all of its samples."""
    table = model.train
    left = np.bincount(table.labels[~gone], minlength=len(model.classes))
    empty = [name for name, n in zip(model.classes, left, strict=True) if n == 0]
    if empty:
        which = "that class" if len(empty) == 1 else "these classes"
        raise LQFError(
            f"these are all samples of {listed(empty)}, and a model has no class without one; nothing was forgotten; "
            f"fit again on data without {which}"
        )


def _by_ids(table: TrainingTable, ids: Iterable[str | int]) -> np.ndarray:
    names = [ids] if isinstance(ids, str | int | np.integer) else list(ids)
    if not names:
        raise LQFError(f"{naming.name('ids')} names no sample")
    if not table.ids:
        raise LQFError("the model keeps no table of its training samples, so that none can be forgotten")
    place = {name: i for i, name in enumerate(table.ids)}
    unknown, gone = [], np.zeros(len(table.ids), dtype=bool)
    for one in names:
        at = int(one) if isinstance(one, int | np.integer) else place.get(str(one), -1)
        if 0 <= at < len(gone):
            gone[at] = True
        else:
            unknown.append(str(one))
    if unknown:
        what = "is not the id of a training sample" if len(unknown) == 1 else "are not ids of training samples"
        raise LQFError(
            f"{listed(unknown)} {what}; ids are in samples.csv of the model, like {listed(table.ids[:2])}; nothing was "
            "forgotten"
        )
    return gone


def _by_group(table: TrainingTable, group: str) -> np.ndarray:
    if table.groups is None:
        raise LQFError(
            f"the model was fitted without groups; name samples by {naming.name('ids')} or {naming.name('where')}"
        )
    return _found(np.array([name == group for name in table.groups]), f"the group `{group}`")


def _by_column(model: Model, column: str, value: Any) -> np.ndarray:
    table, name = model.train, column.strip().lower()
    own: dict[str, Any] = {
        "id": table.ids,
        "label": [model.classes[k] for k in table.labels],
        "group": table.groups or table.ids,
        "sha256": table.hashes,
        "weight": [repr(w) for w in table.weights.tolist()],
    }
    if name not in own:
        own[name] = _of_manifest(table, name, list(own))
    wanted = str(value).strip()
    cells = own[name]
    if name == "weight":
        wanted = _number(wanted)
    return _found(np.array([cell == wanted for cell in cells]), f"{name}={wanted}")


def _number(text: str) -> str:
    try:
        return repr(float(text))
    except ValueError:
        raise LQFError(f"a weight is a number, not `{text}`") from None


def _of_manifest(table: TrainingTable, column: str, own: list[str]) -> list[str | None]:
    """The cells of a column of the manifests that the samples came from."""
    places = [Path(p).expanduser() for p in (table.source, *table.added) if p is not None]
    manifests = [p for p in places if p.suffix.lower() == ".csv" and p.is_file()]
    cells: dict[str, str] = {}
    for manifest in manifests:
        cells |= column_of(manifest, column) or {}
    if not cells:
        where = f"nor of {' or '.join(f'`{m}`' for m in manifests)}" if manifests else "and there is no manifest"
        raise LQFError(f"`{column}` is no column of the model's samples ({', '.join(own)}), {where}")
    return [cells.get(name) for name in table.ids]


def _found(gone: np.ndarray, what: str) -> np.ndarray:
    if not gone.any():
        raise LQFError(f"no training sample has {what}; nothing was forgotten")
    return gone
