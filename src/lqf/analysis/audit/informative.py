"""Which samples inform the model most, and which not at all: functional information, per class."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from lqf.analysis.audit.rows import Informative
from lqf.fitting import Model

COLUMNS = ("rank", "id", "label", "information", "rank_in_class", "of_class")


def by_information(model: Model, values: Tensor) -> list[Informative]:
    """Every training sample, the most informative first, with its place among its class.

    Args:
        model: fitted.
        values: (N,) F-SI of every sample.
    """
    train = model.train
    sizes, seen = [0] * len(model.classes), [0] * len(model.classes)
    for y in train.labels.tolist():
        sizes[y] += 1
    rows: list[Informative] = []
    for rank, i in enumerate(values.argsort(descending=True, stable=True).tolist(), 1):
        y = int(train.labels[i])
        seen[y] += 1
        rows.append(
            {
                "rank": rank,
                "index": i,
                "id": train.ids[i],
                "label": model.classes[y],
                "information": float(values[i]),
                "rank_in_class": seen[y],
                "of_class": sizes[y],
            }
        )
    return rows


def ends_of_classes(rows: Iterable[Informative], each: int) -> dict[str, tuple[list[Informative], list[Informative]]]:
    """The ``each`` most and least informative rows of every class, the extreme ones first; no row is in both."""
    ends: dict[str, tuple[list[Informative], list[Informative]]] = {}
    for row in rows:
        most, least = ends.setdefault(row["label"], ([], []))
        if row["rank_in_class"] <= min(each, (row["of_class"] + 1) // 2):
            most.append(row)
        elif row["rank_in_class"] > row["of_class"] - each:
            least.insert(0, row)
    return ends
