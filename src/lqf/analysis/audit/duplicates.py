"""Images that are nearly the same to the model: pairs with a large cosine under its kernel."""

from __future__ import annotations

from collections.abc import Iterable

from lqf.analysis.audit.rows import Pair
from lqf.fitting import Model

COLUMNS = ("similarity", "id", "other", "label", "other_label", "same_file")
LEAST = 0.9
"""Cosine from which on two images are listed: different photographs of one kind of bird reach 0.7."""
MOST = 1000
"""Pairs that are listed; a folder full of copies has more than anybody reads."""


def near_duplicates(model: Model, pairs: Iterable[tuple[int, int, float]]) -> list[Pair]:
    """Rows of pairs (i, j, cosine): names, labels, and whether both are the same file, byte for byte."""
    train, rows = model.train, list[Pair]()
    for i, j, similarity in pairs:
        rows.append(
            {
                "similarity": min(1.0, similarity),
                "index": i,
                "id": train.ids[i],
                "other_index": j,
                "other": train.ids[j],
                "label": model.classes[train.labels[i]],
                "other_label": model.classes[train.labels[j]],
                "same_file": train.hashes[i] == train.hashes[j],
            }
        )
    return rows
