"""Tables of a report, cut to what a person reads, with the number of rows left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lqf.evaluation.metrics import Confusion, confusions
from lqf.reports import figures
from lqf.reports.html.environment import percent

WHOLE = 14
"""Up to so many classes the whole confusion matrix is shown; of more, those that are confused most."""
MOST_ROWS = 20


def confusion_matrix(classes: Sequence[str], labels: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    """Counts and shares of a readable part of the confusion matrix.

    Rows are labels, columns predictions. Of many classes the matrix shows those in the most frequent confusions.
    """
    pairs = Counter(zip(labels.tolist(), predicted.tolist(), strict=True))
    shown = _most_confused(confusions(labels.tolist(), predicted.tolist()), len(classes))
    totals = np.bincount(labels, minlength=len(classes))
    rows = [
        {
            "name": classes[a],
            "cells": [
                {
                    "n": pairs[a, b],
                    "share": pairs[a, b] / totals[a] if totals[a] else 0.0,
                    "right": a == b,
                    "other": classes[b],
                }
                for b in shown
            ],
            "elsewhere": int(totals[a]) - sum(pairs[a, b] for b in shown),
            "n": int(totals[a]),
        }
        for a in shown
    ]
    return {"rows": rows, "names": [classes[k] for k in shown], "left_out": len(classes) - len(shown)}


def _most_confused(found: Sequence[Confusion], n_classes: int) -> list[int]:
    if n_classes <= WHOLE:
        return list(range(n_classes))
    shown: list[int] = []
    for c in found:
        new = [k for k in (c.label, c.predicted) if k not in shown]
        if len(shown) + len(new) > WHOLE - 2:
            break
        shown += new
    return sorted(shown or range(WHOLE - 2))


def confused_pairs(classes: Sequence[str], labels: np.ndarray, predicted: np.ndarray, most: int = 8) -> dict[str, Any]:
    """The most frequent confusions, with their share of the class."""
    found = confusions(labels.tolist(), predicted.tolist())
    rows = [
        {"label": classes[c.label], "predicted": classes[c.predicted], "n": c.n, "share": c.share} for c in found[:most]
    ]
    return cut(rows, len(found))


def measured(loo: Mapping[str, Any], test: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The figures of leave-one-out and of the test set, each with its interval."""
    of = [figures.rows(result, percent) for result in (loo, test) if result is not None]
    return [{"name": rows[0].name, "of": rows} for rows in zip(*of, strict=True)]


def class_table(classes: Sequence[str], loo: Mapping[str, Any], test: Mapping[str, Any] | None) -> dict[str, Any]:
    """Size and errors of every class, the worst first; F1 on the test set where there is one."""
    rows = []
    for name in classes:
        row: dict[str, Any] = {"name": name, "n": 0, "loo": None, "test_n": 0, "test": None, "f1": None}
        if name in loo["per_class"]:
            found = loo["per_class"][name]
            row |= {"n": found["n"], "loo": found["error"], "f1": found["f1"] if test is None else None}
        if test is not None and name in test["per_class"]:
            found = test["per_class"][name]
            row |= {"test_n": found["n"], "test": found["error"], "f1": found["f1"]}
        rows.append(row)
    rows.sort(key=lambda r: -max(r["loo"] or 0.0, r["test"] or 0.0))
    return cut(rows[:MOST_ROWS], len(rows))


def cut(rows: Iterable[Any], total: int) -> dict[str, Any]:
    """Rows that are shown, and how many are not."""
    shown = list(rows)
    return {"rows": shown, "left_out": total - len(shown)}
