"""A run whose training loss ends above that of zero output has diverged, though all its numbers are finite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

ERRORS = ("test_error", "test_error_mirrored", "validation_error")


def zero_loss(settings: Mapping[str, Any], classes: int) -> float | None:
    """The mean training loss of outputs that are all zero; None: the method has no loss that falls step by step.

    log C for the cross entropy of C classes, ½α² for ½‖f − α·onehot(y)‖².
    """
    if settings.get("loss") == "cross_entropy":
        return math.log(classes)
    return 0.5 * float(settings["alpha"]) ** 2 if settings.get("loss") == "mse" else None


def astray(losses: Sequence[float | None], settings: Mapping[str, Any], classes: int) -> bool:
    """Whether the last of the mean losses is above that of zero output, or not finite."""
    limit = zero_loss(settings, classes)
    if not losses or limit is None:
        return False
    last = losses[-1]
    return last is None or not last <= limit


def judged(result: dict[str, Any], settings: Mapping[str, Any], classes: int) -> dict[str, Any]:
    """A cell's result, without errors where its run diverged; what they were is kept as `lost`."""
    if not astray(result.get("losses") or (), settings, classes):
        return result
    errors = {k: result[k] for k in ERRORS if k in result}
    return {**result, **dict.fromkeys(errors), "diverged": True, "lost": result.get("lost", errors)}
