"""What a model says of each image, as rows of a table: for CSV, JSON lines, Parquet, and for a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lqf.data import Samples
from lqf.data.sources import FileSource
from lqf.errors import LQFError
from lqf.utils.text import clean

UNSURE = "unsure"
"""The label of an image whose most probable class is less probable than a threshold."""


@dataclass(frozen=True)
class Sure:
    """How sure a prediction is.

    Attributes:
        classes: the set that holds the right class with the coverage that was asked for; None: none was.
        std: standard deviation of the output behind the label; None: not asked for.
        novelty: p-value, small where the image is unlike all training images; None: not asked for.
    """

    classes: tuple[str, ...] | None = None
    std: float | None = None
    novelty: float | None = None

    def columns(self, *, nested: bool) -> dict[str, Any]:
        """What was asked for, as columns; with ``nested`` a set is a list, otherwise its classes are joined by `; `."""
        sized = {} if self.classes is None else {"set": list(self.classes), "set_size": len(self.classes)}
        if sized and not nested:
            sized["set"] = "; ".join(self.classes or ())
        numbers = {"std": self.std, "novelty": self.novelty}
        return sized | {name: x for name, x in numbers.items() if x is not None}


@dataclass(frozen=True)
class Prediction:
    """One image.

    Attributes:
        path: of its file, or its id.
        ranked: the most probable classes, the best first; none where the image could not be read.
        unsure: whether the best one is less probable than the threshold; None: there is none.
        note: why there is no prediction.
        given: its label, where it has one.
        sure: how sure it is; None: not asked for, or there is no prediction.
    """

    path: str
    ranked: tuple[tuple[str, float], ...] = ()
    unsure: bool | None = None
    note: str = ""
    given: str | None = None
    sure: Sure | None = None

    @property
    def label(self) -> str | None:
        """The predicted class, or `UNSURE`."""
        return None if not self.ranked else UNSURE if self.unsure else self.ranked[0][0]

    @property
    def probability(self) -> float | None:
        """Of the most probable class."""
        return self.ranked[0][1] if self.ranked else None

    @property
    def top(self) -> list[dict[str, Any]]:
        """The most probable classes as JSON values."""
        return [{"label": label, "probability": p} for label, p in self.ranked]

    @property
    def right(self) -> bool | None:
        """Whether the prediction is the given label."""
        return None if self.given is None or not self.ranked else self.ranked[0][0] == self.given


def predictions(
    samples: Samples,
    skipped: Sequence[tuple[str, str]],
    classes: Sequence[str],
    predicted: np.ndarray,
    probabilities: np.ndarray,
    *,
    top: int = 1,
    threshold: float | None = None,
    given: Sequence[str] | None = None,
    sure: Sequence[Sure] | None = None,
) -> list[Prediction]:
    """One per image, in order, also for those that could not be read.

    Args:
        samples: all images.
        skipped: (id, reason) of those that could not be read.
        classes: of the model.
        predicted: (M,) classes of the others.
        probabilities: (M, n_classes), likewise.
        top: so many classes of each image, at most all.
        threshold: less probable predictions are unsure.
        given: labels, empty where there is none; None: there are none at all.
        sure: (M,) how sure; None: not asked for.
    """
    unasked = [None] * len(predicted)
    reasons, rows = dict(skipped), iter(zip(predicted.tolist(), probabilities, sure or unasked, strict=True))
    found = []
    for i, (name, path) in enumerate(zip(samples.ids, paths(samples), strict=True)):
        label = (given[i] or None) if given is not None else None
        if name in reasons:
            found.append(Prediction(path, note=reasons[name], given=label))
            continue
        k, p, own = next(rows)
        unsure = None if threshold is None else float(p[k]) < threshold
        found.append(Prediction(path, ranked(classes, k, p, top), unsure, given=label, sure=own))
    return found


def check_threshold(classes: Sequence[str], threshold: float | None) -> None:
    """Refuse a threshold where `UNSURE` is a class already."""
    if threshold is not None and UNSURE in classes:
        raise LQFError(
            f"the model has a class `{UNSURE}`, which a threshold writes for images that are not; "
            "leave the threshold out and compare the probabilities with it"
        )


def paths(samples: Samples) -> list[str]:
    """Of the images' files, as they can be opened; ids where there are no files."""
    files = samples.source.paths if isinstance(samples.source, FileSource) else samples.ids
    return [_encodable(file) for file in files]


def table(rows: Sequence[Prediction], *, nested: bool = False) -> list[dict[str, Any]]:
    """Columns of every prediction: path, label, probability, further classes, note; ``given`` where there are labels;
    set, set_size, std and novelty where they were asked for.

    With ``nested`` the classes are one list ``top``. Otherwise they are label_2, probability_2, …, and with a threshold
    ``label_1`` is the most probable class, also where the label is `UNSURE`.

    Args:
        rows: the predictions.
        nested: for JSON.
    """
    columns = Columns(
        most=max((len(r.ranked) for r in rows), default=0),
        threshold=any(r.unsure is not None for r in rows),
        given=any(r.given is not None for r in rows),
        sure=tuple(next((r.sure for r in rows if r.sure is not None), Sure()).columns(nested=nested)),
        nested=nested,
    )
    return [columns.row(r) for r in rows]


@dataclass(frozen=True)
class Columns:
    """Of a table of predictions.

    Attributes:
        most: so many classes of each image.
        threshold: whether predictions may be unsure.
        given: whether there are labels.
        sure: what was asked for of how sure they are.
        nested: whether values may be lists.
    """

    most: int
    threshold: bool
    given: bool
    sure: tuple[str, ...]
    nested: bool

    def row(self, r: Prediction) -> dict[str, Any]:
        """One prediction."""
        return {
            "path": r.path,
            **({"given": r.given} if self.given else {}),
            "label": r.label,
            "probability": r.probability,
            **({"top": r.top} if self.nested else _flat(r, self.most, self.threshold)),
            **(dict.fromkeys(self.sure) | ({} if r.sure is None else r.sure.columns(nested=self.nested))),
            "note": r.note,
        }

    @property
    def kinds(self) -> dict[str, type]:
        """What the values of the columns are, where nothing was asked for of how sure they are."""
        return {k: float if k.startswith("probability") else str for k in self.row(Prediction(""))}


def answers(rows: Sequence[Prediction]) -> list[dict[str, Any]]:
    """Columns of labelled images: path, label, predicted, probability, right, note."""
    return [
        {
            "path": r.path,
            "label": r.given,
            "predicted": r.label,
            "probability": r.probability,
            "right": r.right,
            "note": r.note,
        }
        for r in rows
    ]


def ranked(classes: Sequence[str], best: int, p: np.ndarray, top: int) -> tuple[tuple[str, float], ...]:
    """The ``top`` classes, the predicted one first: rounding may have made two probabilities equal."""
    order = [best, *(k for k in (-p).argsort(kind="stable").tolist() if k != best)]
    return tuple((classes[k], float(p[k])) for k in order[:top])


def _flat(row: Prediction, most: int, first: bool) -> dict[str, Any]:
    padded = [*row.ranked, *[(None, None)] * (most - len(row.ranked))]
    columns: dict[str, Any] = {"label_1": padded[0][0]} if first else {}
    for k, (label, p) in enumerate(padded[1:], 2):
        columns |= {f"label_{k}": label, f"probability_{k}": p}
    return columns


def _encodable(file: str | Path) -> str:
    """The path as it is; with its bytes escaped where it is not text."""
    try:
        str(file).encode()
    except UnicodeEncodeError:
        return clean(file)
    return str(file)
