"""What was chosen automatically, as entries of a report: what was tried, how it did out of sample, what was kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lqf.fitting.head_fit import HeadFit
    from lqf.fitting.select_ridge import Choice, Trial


def choice_of_pooling(tried: Sequence[HeadFit], kept: HeadFit) -> tuple[dict[str, Any], ...]:
    """One entry, or none where there was nothing to choose; of two kinds of features with the share of the second."""
    if len(tried) < 2:
        return ()
    scores = {p.pooling: _score(p.choice.best) for p in tried}
    return ({"what": "pooling", "kept": kept.pooling, "tried": scores, **_share(kept)},)


def _share(head: HeadFit) -> dict[str, float]:
    """Of the second kind of features in the kernel's trace, over the first kind's; nothing where there is one kind."""
    first = head.backbone.spec.get("pooling", {}).get("average")
    if first is None:
        return {}
    sizes = [float(z.norm()) ** 2 for z in (head.features[:, :first], head.features[:, first:])]
    return {"share": float(f"{sizes[1] / sizes[0]:.3g}")} if sizes[0] else {}


def choice_of_views(plain: HeadFit, mirrored: HeadFit, kept: str, why: str) -> dict[str, Any]:
    """One entry; ``why`` says why not, where mirrored views are not kept."""
    tried = {"none": _score(plain.choice.best), "flip": _score(mirrored.choice.best)}
    return {"what": "views", "kept": kept, "tried": tried, "why": why}


def choice_of_weight_decay(choice: Choice, total_weight: float, of: str) -> tuple[dict[str, Any], ...]:
    """One entry, or none where the weight decay was given; ``of`` is "head", "body", or "model": both."""
    if len(choice.trials) < 2:
        return ()

    def decay(trial: Trial) -> float:
        return trial.mu * (trial.omega if of == "body" else 1.0) / total_weight

    trials = sorted(choice.trials, key=decay)
    return (
        {
            "what": f"weight decay ({of})",
            "kept": decay(choice.best),
            "tried": [{"weight_decay": decay(t), **_score(t)} for t in trials],
            **({"at_end": choice.at_end} if choice.at_end else {}),
        },
    )


def _score(trial: Trial) -> dict[str, float | None]:
    return {"loo_error": trial.error, "loss": trial.loss if math.isfinite(trial.loss) else None}
