"""Made-up answers of a model on labelled images."""

from __future__ import annotations

from typing import Any

import numpy as np


def answers(n: int, n_classes: int, *, skill: float = 1.5, sharp: float = 1.5, seed: int = 0) -> dict[str, Any]:
    """Labels, predictions and probabilities, calibrated where ``sharp`` is ``skill``: arguments of `measure`."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_classes, size=n)
    f = rng.normal(size=(n, n_classes))
    f[np.arange(n), labels] += skill
    p = np.exp(sharp * f) / np.exp(sharp * f).sum(1, keepdims=True)
    classes = tuple(f"class {k}" for k in range(n_classes))
    return {
        "classes": classes,
        "labels": labels,
        "predicted": f.argmax(1),
        "probabilities": p,
        "weights": np.ones(n),
    }
