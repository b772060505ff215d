"""The training data without the labels that are taken to be wrong, or with the predictions in their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from lqf.analysis.audit.rows import Suspect
from lqf.data import Samples
from lqf.data.manifests import sample_row

Rows = list[dict[str, Any]]
"""Of a manifest."""
LEAST = 2
"""Samples that every class keeps: with one there is nothing to leave out."""


def doubted(suspects: Iterable[Suspect]) -> dict[int, str]:
    """Number -> predicted class of the suspicious samples; the most credible ones of a class that would be left with
    fewer than `LEAST` stay.

    Args:
        suspects: of all samples, the least credible label first.
    """
    left, taken = Counter(row["label"] for row in suspects), {}
    for row in suspects:
        if row["suspicious"] and left[row["label"]] > LEAST:
            left[row["label"]] -= 1
            taken[row["index"]] = row["predicted"]
    return taken


def cleaned(samples: Samples, suspects: Iterable[Suspect]) -> Rows:
    """Rows of all samples but the doubted ones, in their order."""
    taken = doubted(suspects)
    return [sample_row(samples, i) for i in range(len(samples)) if i not in taken]


def relabelled(samples: Samples, suspects: Iterable[Suspect]) -> Rows:
    """Rows of all samples, those of the doubted ones with the predicted label; "was" has the one that was given."""
    taken = doubted(suspects)
    rows = [sample_row(samples, i, taken.get(i)) for i in range(len(samples))]
    return [row | {"was": samples.classes[samples.labels[row["index"]]]} for row in rows]
