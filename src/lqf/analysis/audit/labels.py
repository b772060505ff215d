"""Labels that the other samples contradict, and classes that are taken for each other: both from leave-one-out.

For a sample with label y and leave-one-out outputs f, the soft margin

    m = (1/β) log Σ_{k≠y} exp(β f_k) − f_y,        p_y = 1/(1 + exp(β m)),

says how strongly a model that has not seen the sample speaks against its label; β is the model's calibrated inverse
temperature, so the order is that of the label's own probability. It counts all other classes, not only the best one: of
flipped labels that finds a few more. It is large where the label is wrong, and where the image is a hard one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lqf.analysis.audit.rows import Confused, Suspect
from lqf.evaluation.calibration import probabilities
from lqf.evaluation.leave_one_out import LeaveOneOut
from lqf.evaluation.metrics import confusions
from lqf.fitting import Model
from lqf.linear.targets import decide, logits

SUSPECT_COLUMNS = (
    *("rank", "id", "label", "predicted", "margin", "label_probability", "predicted_probability"),
    "suspicious",
)
CONFUSION_COLUMNS = ("label", "predicted", "n", "share")


SURE = 0.9
"""Probability of another class from which on a label is taken to be wrong. On five sets of images, with none to 20 % of
the labels flipped, a head without such labels was on average no worse; with a lower bound, or by how improbable the
label itself is, hard images go and the error rises (`benchmarks/results/cleaned_labels-efficientnet_lite0-cpu.json`).
"""


def suspicious(model: Model, loo: LeaveOneOut) -> Tensor:
    """(N,) whether a model without the sample is sure (`SURE`) that it belongs to another class than its label says.

    False where leave-one-out is not known.
    """
    p, predicted = probabilities(loo.outputs, model.beta).max(1)  # NaN is not above anything
    return (predicted != loo.labels.to(predicted.device)) & (p >= SURE)


def contradicted(loo: LeaveOneOut) -> Tensor:
    """(N,) whether leave-one-out, as far as it is known, predicts another class than the label."""
    return (decide(loo.outputs) != loo.labels.to(loo.outputs.device)) & loo.known


def suspects(model: Model, loo: LeaveOneOut) -> list[Suspect]:
    """Every training sample, the most suspicious label first."""
    margin, predicted = soft_margin(model, loo), loo.predicted
    p, sure = probabilities(loo.outputs, model.beta), suspicious(model, loo)
    rows: list[Suspect] = []
    for rank, i in enumerate(margin.argsort(descending=True, stable=True).tolist(), 1):
        y, k = int(model.train.labels[i]), int(predicted[i])
        rows.append(
            {
                "rank": rank,
                "index": i,
                "id": model.train.ids[i],
                "label": model.classes[y],
                "predicted": model.classes[k],
                "margin": float(margin[i]),
                "label_probability": float(p[i, y]),
                "predicted_probability": float(p[i, k]),
                "suspicious": bool(sure[i]),
            }
        )
    return rows


def soft_margin(model: Model, loo: LeaveOneOut) -> Tensor:
    """(N,) how strongly the other samples contradict each label."""
    scores = model.beta * logits(loo.outputs.double())
    own = loo.labels[:, None].to(scores.device)
    others = scores.scatter(1, own, -torch.inf).logsumexp(1)
    return ((others - scores.gather(1, own)[:, 0]) / model.beta).cpu()


def confused_classes(model: Model, loo: LeaveOneOut) -> list[Confused]:
    """Which class is taken for which in leave-one-out, how often, for which share of it; most frequent first."""
    return [
        {"label": model.classes[c.label], "predicted": model.classes[c.predicted], "n": c.n, "share": c.share}
        for c in confusions(model.train.labels.tolist(), loo.predicted.tolist())
    ]
