"""Mirrored views or none, by leave-one-out of the closed-form head.

The pooling is chosen without views; under it, the head is fitted once more with every image and its mirror image, which
leave together and whose outputs are averaged. A second view doubles the cost of everything that follows, so it is kept

- where there are at most `MOST_IMAGES`,
- where it lowers the cross-entropy of the leave-one-out outputs by at least `GAIN` of what it is without, and
- where the planner expects the solve to take at most `BEARABLE` seconds with it (`lqf.fitting.pose`).

What it gains, a network gains from its own symmetry: where left and right matter (text, organs) it is not kept.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from lqf.data import has_pixels
from lqf.fitting.choices import choice_of_views
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.select_pooling import MOST_ROWS
from lqf.fitting.select_ridge import Trial
from lqf.solvers.planner import Plan
from lqf.utils import naming
from lqf.utils.text import byte_count

GAIN = 0.02
"""Least relative gain in leave-one-out cross-entropy."""
MOST_IMAGES = 2000
"""Beyond so many the images show enough, and twice the time buys little."""
BEARABLE = 600.0
"""Expected seconds of a solve with views that were not asked for."""


def select_views(head: HeadFit, fixed: str | None = None) -> HeadFit:
    """`--views auto`: mirrored views where they gain enough, or what a checkpoint ``fixed``."""
    data, context = head.data, head.context
    asked = context.settings.views == "auto" and context.settings.augment == "none"
    if not (asked and data.preprocess.views == "none" and has_pixels(data.images)) or fixed == "none":
        return head
    memory, device = min(context.world.all_gather(context.free_bytes())) // 2, context.device.type
    against = reason_against(2 * len(data), head.features.shape[1], context.dtype.itemsize, memory, device)
    if not against and len(data) > MOST_IMAGES:
        against = f"are not tried for {len(data):,} images"
    if against and fixed is None:
        context.progress.note(f"mirrored views {against}; {naming.given('views', 'flip')} does")
        return head
    other = in_views(head, "flip")
    if fixed == "flip":
        return other
    keep = context.world.first(lambda: worth_it(head.choice.best, other.choice.best))
    entry = choice_of_views(head, other, "flip" if keep else "none", "" if keep else "flip gains too little")
    return replace(other if keep else head, choices=(*head.choices, entry), one_view=head if keep else None)


def without_views(head: HeadFit, why: str) -> HeadFit:
    """The same with one view, because the chosen ones cost too much."""
    assert head.one_view is not None
    return replace(head.one_view, choices=(*head.choices[:-1], {**head.choices[-1], "kept": "none", "why": why}))


def in_views(head: HeadFit, views: str) -> HeadFit:
    """The same head on more views of every image, of which the first are those it has."""
    data, known = head.data.with_views(views), head.data.n_views
    encoder = head.encoder.in_views(data)
    more = [encoder.features_of_view(view) for view in range(known, data.n_views)]
    z = torch.cat([head.features.unflatten(0, (-1, known)), torch.stack(more, 1)], 1).flatten(0, 1)
    return replace(HeadFit.of(encoder, head.pooling, z), choices=head.choices)


def worth_it(plain: Trial, mirrored: Trial) -> bool:
    """Whether the mirrored views gain enough."""
    return mirrored.loss <= (1 - GAIN) * plain.loss


def reason_against(rows: int, features: int, item: int, memory: int, device: str) -> str:
    """Why a head on more views is not even tried, as the end of a sentence; empty where it is.

    Args:
        rows: with all views.
        features: p.
        item: bytes per number.
        memory: free bytes.
        device: "cpu" or "cuda".
    """
    side = min(rows, features)
    need = 3 * rows * features * item + 6 * 8 * side * side
    if side > MOST_ROWS[device]:
        return f"are not tried for {rows:,} rows"
    if need > memory:
        return f"are not tried: their head needs {byte_count(need)} of memory"
    return ""


def too_expensive(plan: Plan) -> bool:
    """Whether a solve with mirrored views takes too long."""
    return plan.seconds > BEARABLE
