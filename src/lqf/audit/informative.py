"""Which samples tell the model most, and which nothing: functional information, per class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from lqf.fitted import Fitted

if TYPE_CHECKING:
    from lqf.analysis import Analysis, Information

COLUMNS = ("rank", "id", "label", "information", "rank_in_class", "of_class")


def measure_information(analysis: Analysis, validation: Any = None) -> Information:
    """F-SI on validation images; None: on the training images.

    From the kernel every sample is measured on the *other* training images; beside PCG, where that would take a solve
    per sample, the sample's own prediction counts, too.
    """
    from lqf.analysis import Queries
    from lqf.analysis.by_iteration import ByIteration

    if validation is None and isinstance(analysis.method, ByIteration):
        validation = Queries.of(analysis.images)
    return analysis.information(validation)


def by_information(fitted: Fitted, values: Tensor) -> list[dict[str, Any]]:
    """Every training sample, the most informative first, with its place among its class.

    Args:
        fitted: the model.
        values: (N,) F-SI of every sample.
    """
    train = fitted.train
    sizes, seen = [0] * len(fitted.classes), [0] * len(fitted.classes)
    for y in train.labels.tolist():
        sizes[y] += 1
    rows = []
    for rank, i in enumerate(values.argsort(descending=True, stable=True).tolist(), 1):
        y = int(train.labels[i])
        seen[y] += 1
        rows.append(
            {
                "rank": rank,
                "index": i,
                "id": train.ids[i],
                "label": fitted.classes[y],
                "information": float(values[i]),
                "rank_in_class": seen[y],
                "of_class": sizes[y],
            }
        )
    return rows


def ends_of_classes(rows: list[dict[str, Any]], each: int) -> dict[str, tuple[list[Any], list[Any]]]:
    """The ``each`` most and least informative rows of every class, the extreme ones first; no row is in both."""
    ends: dict[str, tuple[list[Any], list[Any]]] = {}
    for row in rows:
        most, least = ends.setdefault(row["label"], ([], []))
        if row["rank_in_class"] <= min(each, (row["of_class"] + 1) // 2):
            most.append(row)
        elif row["rank_in_class"] > row["of_class"] - each:
            least.insert(0, row)
    return ends
