"""What was chosen automatically, for the report: what was tried, how it did in leave-one-out, what was kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lqf.fitting.select_pooling import Pooled
from lqf.fitting.select_ridge import Choice, Trial


def of_pooling(tried: Sequence[Pooled], kept: Pooled) -> list[dict[str, Any]]:
    """One entry, or none where there was nothing to choose."""
    if len(tried) < 2:
        return []
    return [{"what": "pooling", "kept": kept.name, "tried": {p.name: _score(p.choice.best) for p in tried}}]


def of_views(plain: Pooled, mirrored: Pooled, kept: str, why: str) -> dict[str, Any]:
    """One entry; ``why`` says why not, where mirrored views are not kept."""
    tried = {"none": _score(plain.choice.best), "flip": _score(mirrored.choice.best)}
    return {"what": "views", "kept": kept, "tried": tried, "why": why}


def of_weight_decay(choice: Choice, total: float, of: str) -> list[dict[str, Any]]:
    """One entry, or none where the weight decay was given; ``total`` is Σs, ``of`` "head", "body", or "model": both."""
    if len(choice.trials) < 2:
        return []

    def decay(trial: Trial) -> float:
        return trial.mu * (trial.omega if of == "body" else 1.0) / total

    trials = sorted(choice.trials, key=decay)
    return [
        {
            "what": f"weight decay ({of})",
            "kept": decay(choice.best),
            "tried": [{"weight_decay": decay(t), **_score(t)} for t in trials],
        }
    ]


def _score(trial: Trial) -> dict[str, float | None]:
    return {"loo_error": trial.error, "loss": trial.loss if math.isfinite(trial.loss) else None}
