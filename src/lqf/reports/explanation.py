"""One prediction explained by the training images: which of them pushed it there, and which away.

What is explained is one score: how a class stands against another, the predicted one against the runner-up unless one
was asked for. The effect of a training sample (or group) is what leaving it out changes there, by the removal formula;
it is shown as the calibrated probability of the one class, of the two, without the sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lqf.analysis import Contrast
from lqf.evaluation.calibration import probabilities
from lqf.linear.targets import decide
from lqf.utils.text import percent, shortened

MOST_CLASSES = 5
"""Classes whose probability is given."""


@dataclass(frozen=True)
class Push:
    """What leaving out one training unit does to a prediction.

    Attributes:
        name: id of the sample, or name of the group.
        sample: number of the unit's first sample, whose picture stands for it.
        label: that sample's label.
        size: samples of the unit.
        change: of the log-odds of the explained class against the other when the unit is left out.
        probability: of the explained class, of these two, without the unit.
    """

    name: str
    sample: int
    label: str
    size: int
    change: float
    probability: float


@dataclass(frozen=True)
class Explanation:
    """One image's prediction and what it rests on.

    Attributes:
        id: of the image.
        query: its number among those that were asked about.
        predicted: class.
        probability: of that class, calibrated on leave-one-out outputs.
        probabilities: of the likeliest classes, the likeliest first, and of the explained one.
        label: where it is known, else None.
        explained: the class whose standing is explained: the predicted one, unless another was asked for.
        against: the class it is held against: the likeliest of the others.
        share: probability of the explained class, of these two.
        towards, away: training units that pushed towards the explained class and away from it, the strongest first: by
            that probability without them, the lowest first towards it, the highest first away.
    """

    id: str
    query: int
    predicted: str
    probability: float
    probabilities: dict[str, float]
    label: str | None
    explained: str
    against: str
    share: float
    towards: tuple[Push, ...]
    away: tuple[Push, ...]

    def __repr__(self) -> str:
        lines = [f"Explanation({self.id}: {self.predicted} {percent(self.probability)})"]
        lines += [f"  {side}: {_pushes(getattr(self, side))}" for side in ("towards", "away")]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        names = ("id", "predicted", "probability", "probabilities", "label", "explained", "against", "share")
        plain = {k: getattr(self, k) for k in names}
        return plain | {side: [_plain(p) for p in getattr(self, side)] for side in ("towards", "away")}


def explanations(contrast: Contrast, train_labels: Tensor, *, most: int = 6) -> list[Explanation]:
    """One for every query.

    Args:
        contrast: effects of all training units on the queries.
        train_labels: (N,) classes of the training samples.
        most: units of each kind, at most.
    """
    p, change, before = probabilities(contrast.outputs, contrast.beta), contrast.effects, contrast.log_odds
    classes, predicted = contrast.classes, decide(contrast.outputs).tolist()
    labels = [classes[k] for k in train_labels.tolist()]
    first, size = _members(contrast.units.member, len(contrast.units))
    explained = []
    for q, name in enumerate(contrast.query_ids):
        k, y = predicted[q], int(contrast.labels[q])
        order = change[:, q].argsort(stable=True).tolist()
        towards = [u for u in order[:most] if change[u, q] < 0]
        away = [u for u in order[::-1][:most] if change[u, q] > 0]
        without = torch.sigmoid(before[q] + change[towards + away, q])
        pushes = [
            Push(contrast.units.names[u], first[u], labels[first[u]], size[u], float(change[u, q]), float(w))
            for u, w in zip(towards + away, without, strict=True)
        ]
        likely = p[q].argsort(descending=True, stable=True)[:MOST_CLASSES].tolist()
        likely += {int(contrast.first[q])}.difference(likely)  # asked for, and improbable
        explained.append(
            Explanation(
                id=name,
                query=q,
                predicted=classes[k],
                probability=float(p[q, k]),
                probabilities={classes[c]: float(p[q, c]) for c in likely},
                label=classes[y] if y >= 0 else None,
                explained=classes[int(contrast.first[q])],
                against=classes[int(contrast.second[q])],
                share=float(torch.sigmoid(before[q])),
                towards=tuple(pushes[: len(towards)]),
                away=tuple(pushes[len(towards) :]),
            )
        )
    return explained


def _members(member: Tensor, n: int) -> tuple[list[int], list[int]]:
    """Number of the first sample of every unit, and how many it has."""
    first = torch.full((n,), len(member), dtype=torch.long)
    first.scatter_reduce_(0, member.cpu(), torch.arange(len(member)), "amin")
    return first.tolist(), torch.bincount(member.cpu(), minlength=n).tolist()


def _pushes(pushes: tuple[Push, ...], most: int = 2) -> str:
    shown = [f"{shortened(p.name, 24)} (without it {percent(p.probability)})" for p in pushes[:most]]
    return ", ".join(shown + (["…"] if len(pushes) > most else [])) or "nothing"


def _plain(push: Push) -> dict[str, Any]:
    names = ("name", "label", "size", "change", "probability")
    return {name: getattr(push, name) for name in names}
