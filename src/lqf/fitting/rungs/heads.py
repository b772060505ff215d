"""The head, first and always; then in more views of every image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lqf.backbones import Backbone
from lqf.data import has_pixels
from lqf.fitting.assemble import assemble_head
from lqf.fitting.choices import choice_of_pooling
from lqf.fitting.head_fit import HeadFit
from lqf.fitting.head_folds import without_folds
from lqf.fitting.rungs.pace import Pace, head_algebra
from lqf.fitting.rungs.rung import Attempt, EarlierAttempt, Ground, NotNow, repeated
from lqf.fitting.select_pooling import best_head, candidate_heads
from lqf.fitting.select_shown import select_shown
from lqf.fitting.select_views import in_views, reason_against
from lqf.settings import Settings, view_count

HEAD, MIRRORED, CROPS = "head", "head, mirror images", "head, 8 views"
"""Names of the rungs."""
MANY_VIEWS = "crops8"
DOUBT = 1.0
"""More views nearly always help: standard errors by which they may seem worse and are kept all the same."""


@dataclass(frozen=True)
class HeadRung:
    """Closed-form heads on frozen features, under each pooling; the best of them by exact leave-one-out.

    Attributes:
        fixed: the pooling, where a fit that goes on has chosen it before.
    """

    fixed: str | None = None
    name: str = HEAD
    effort: str = "quick"
    kind: str = "head"

    def seconds(self, ground: Ground) -> float:
        rows = len(ground.data) * ground.data.n_views
        return head_seconds(ground.pace, ground.context.settings, ground.backbone, rows, ground.outputs)

    def attempt(self, ground: Ground) -> Attempt:
        tried = candidate_heads(ground.data, ground.backbone, self.fixed)
        kept = self._best(tried, ground)
        kept = replace(kept, choices=choice_of_pooling(tried, kept))
        others = {f"{HEAD}, {h.pooling}": without_folds(h).outputs for h in tried if h.pooling != kept.pooling}
        return head_attempt(self.name, kept, ground, others)

    def again(self, ground: Ground, tried: EarlierAttempt) -> Attempt:
        return repeated(replace(self, fixed=tried.about["pooling"]), ground, tried)

    def _best(self, tried: Sequence[HeadFit], ground: Ground) -> HeadFit:
        if ground.data.alone:  # both poolings together have the lower error then (`benchmarks/one_shot.py`)
            return next((head for head in tried if head.pooling == "both"), tried[0])
        return tried[ground.context.world.first(lambda: best_head(tried))]


@dataclass(frozen=True)
class ViewsRung:
    """The same head in more views: the centre, its mirror image, crops."""

    name: str
    views: str
    effort: str = "quick"
    kind: str = "views"

    def seconds(self, ground: Ground) -> float:
        views, n = view_count(self.views), len(ground.data)
        new = views - (1 if self.views == "flip" else 2)
        head = ground.attempts[HEAD].head if HEAD in ground.attempts else None
        own, bilinear = feature_counts(ground.context.settings, ground.backbone)
        features = head.features.shape[1] if head else own + bilinear
        return ground.pace.seconds(self.kind, n * new, algebra=head_algebra(n * views, features, ground.outputs))

    def attempt(self, ground: Ground) -> Attempt:
        why_not(ground)
        head = self._before(ground)
        data, context = head.data, ground.context
        memory = min(context.world.all_gather(context.free_bytes())) // 2
        rows, device = len(data) * view_count(self.views), context.device.type
        against = reason_against(rows, head.features.shape[1], context.dtype.itemsize, memory, device)
        if against:
            raise NotNow(against)
        return replace(head_attempt(self.name, in_views(head, self.views), ground), doubt=DOUBT)

    def again(self, ground: Ground, tried: EarlierAttempt) -> Attempt:
        return repeated(self, ground, tried)

    def _before(self, ground: Ground) -> HeadFit:
        """The head with the most views so far."""
        heads = [ground.attempts[name].head for name in (MIRRORED, HEAD) if name in ground.attempts]
        return next(head for head in heads if head is not None)


def head_seconds(pace: Pace, settings: Settings, backbone: Backbone, rows: int, outputs: int) -> float:
    """Predicted, of the first head over so many rows."""
    own, bilinear = feature_counts(settings, backbone)
    widths = {"avg": (own, 1), "bilinear": (bilinear, 1), "both": (own + bilinear, 1), "auto": (own + bilinear, 3)}
    features, heads = widths[settings.pooling]
    return pace.seconds("head", rows, algebra=head_algebra(rows, features, outputs, heads))


def feature_counts(settings: Settings, backbone: Backbone) -> tuple[int, int]:
    """Of average pooling, and of bilinear pooling at the most."""
    k = min(settings.pool_channels, backbone.features)
    return backbone.features, k * (k + 1) // 2


def why_not(ground: Ground) -> None:
    """`NotNow` where views are given, or there are no pictures to take views of."""
    settings, data = ground.context.settings, ground.data
    if settings.views != "auto":
        raise NotNow(f"views are given ({settings.views})")
    if not has_pixels(data.images):
        raise NotNow("tensors have one view")


def head_attempt(name: str, head: HeadFit, ground: Ground, alternatives: dict[str, Any] | None = None) -> Attempt:
    """Out of sample by the closed form."""
    views, folds = head.data.preprocess.views, without_folds(head)
    shown = select_shown(folds.rows, views, head.context.settings, ground.losses, ground.data.judging)
    about = {"views": views, "shown": shown.views, "pooling": head.pooling, "stage": None, "solver": "head"}
    return Attempt(
        name,
        shown.outputs,
        lambda: assemble_head(head, shown.views),
        about,
        head,
        alternatives or {},
        strengths=folds.strengths,
    )
