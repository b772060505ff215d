"""Which views of an image a prediction averages over: not always all of those that were trained on.

Crops in training make a model indifferent to how an image is framed. What its average over the same crops says about a
new image may be better than what the centre and its mirror image say, or worse; outputs of models without a sample's
fold tell. Views speak for an image where those trained on begin with them: the centre always, with its mirror image
where no corners come between (five, ten).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lqf.evaluation.paired import mean_loss
from lqf.settings import NAMED_VIEWS, Settings, begins_with, check_shown, view_count

Losses = Callable[[Tensor], Tensor]
"""Outputs (N, C) -> losses (N,), NaN where they are not known."""


@dataclass(frozen=True)
class Shown:
    """Views that speak for an image.

    Attributes:
        views: their name.
        outputs: (N, C) out of sample, averaged over them.
    """

    views: str
    outputs: Tensor


def select_shown(rows: Tensor, views: str, settings: Settings, losses: Losses, weights: Tensor | None = None) -> Shown:
    """Those with the lowest out-of-sample loss, or as the settings say.

    Args:
        rows: (N, V, C) outputs of every view by models without the sample's fold, float64.
        views: name of the views that were trained on.
        settings: ``predict_views``.
        losses: of averaged outputs.
        weights: (N,) by which their mean is taken; default: all the same.
    """
    weights = torch.ones(len(rows)) if weights is None else weights
    candidates = {name: averaged(rows, name) for name in _candidates(views, settings)}
    found = {name: mean_loss(losses(outputs), weights) for name, outputs in candidates.items()}
    best = min(found, key=lambda name: found[name])
    return Shown(best, candidates[best])


def given_shown(views: str, settings: Settings) -> str | None:
    """Where one model is named, the views of predictions that the settings name; None: all that were trained on.

    LQFError where the ``views`` that were trained on do not begin with them.
    """
    asked = settings.predict_views
    check_shown(views, asked)
    return asked if asked in NAMED_VIEWS else None


def averaged(rows: Tensor, views: str) -> Tensor:
    """(N, C) of (N, V, C), over the first views."""
    return rows[:, : view_count(views)].mean(1)


def _candidates(views: str, settings: Settings) -> tuple[str, ...]:
    """From the most views to the fewest: of equals the first is taken."""
    asked = settings.predict_views
    if asked in NAMED_VIEWS and begins_with(views, asked):
        return (asked,)
    if asked == "same" or view_count(views) < 3 or views in ("five", "ten"):
        return (views,)
    return (views, "flip", "none")
