"""Labels that the other samples contradict, and classes that are taken for each other: both from leave-one-out.

For a sample with label y and leave-one-out outputs f, the margin max_{k≠y} f_k − f_y says how strongly a model that has
not seen it speaks against its label. It is large where the label is wrong, and where the image is a hard one.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from lqf.calibration import probabilities
from lqf.fitted import Fitted
from lqf.loo import LeaveOneOut

SUSPECT_COLUMNS = ("rank", "id", "label", "predicted", "margin", "label_probability", "predicted_probability")
CONFUSION_COLUMNS = ("label", "predicted", "n", "share")


def suspects(fitted: Fitted, loo: LeaveOneOut) -> list[dict[str, Any]]:
    """Every training sample, the most suspicious label first; contradicted are those with a margin above zero."""
    margin, predicted = loo.suspicion(), loo.predicted
    p = probabilities(loo.outputs, fitted.beta)
    rows = []
    for rank, i in enumerate(margin.argsort(descending=True, stable=True).tolist(), 1):
        y, k = int(fitted.train.labels[i]), int(predicted[i])
        rows.append(
            {
                "rank": rank,
                "index": i,
                "id": fitted.train.ids[i],
                "label": fitted.classes[y],
                "predicted": fitted.classes[k],
                "margin": float(margin[i]),
                "label_probability": float(p[i, y]),
                "predicted_probability": float(p[i, k]),
            }
        )
    return rows


def confusions(fitted: Fitted, loo: LeaveOneOut) -> list[dict[str, Any]]:
    """Which class is taken for which in leave-one-out, how often, for which share of it; most frequent first."""
    labels, predicted = fitted.train.labels.tolist(), loo.predicted.tolist()
    of_class = Counter(labels)
    pairs = Counter((a, b) for a, b in zip(labels, predicted, strict=True) if a != b)
    ordered = sorted(pairs.items(), key=lambda pair: (-pair[1], -pair[1] / of_class[pair[0][0]], pair[0]))
    return [
        {"label": fitted.classes[a], "predicted": fitted.classes[b], "n": n, "share": n / of_class[a]}
        for (a, b), n in ordered
    ]
