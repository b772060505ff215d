"""Temperatures from left-out outputs, by several ways, and how right the probabilities are on images held out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from common.tasks import mean
from lqf.evaluation.calibration import calibrate, fit_temperature, log_loss, probabilities
from lqf.evaluation.reliability import calibration_error, reliability

WAYS: dict[str, Callable[[Tensor, Tensor], float]] = {
    "best fit": lambda f, y: fit_temperature(f, y)[0],
    "half a mistake": lambda f, y: calibrate(f, y, mistakes=0.5),
    "one mistake": lambda f, y: calibrate(f, y, mistakes=1.0),
    "two mistakes": lambda f, y: calibrate(f, y, mistakes=2.0),
}
"""Outputs (N, C) and labels (N,) -> inverse temperature; the first is what the others are compared with."""


class Calibration:
    """Of many tasks: cross-entropy, and calibration error task by task and of all images together."""

    def __init__(self) -> None:
        self.losses: dict[str, list[float]] = {}
        self.gaps: dict[str, list[float]] = {}
        self.sure: dict[str, list[np.ndarray]] = {}
        self.right: list[np.ndarray] = []

    def add(self, outputs: Tensor, labels: Tensor, betas: dict[str, float]) -> None:
        """One task: outputs held out, and each way's temperature for them."""
        for way, beta in betas.items():
            p, predicted = (t.numpy() for t in probabilities(outputs, beta).max(1))
            right = predicted == labels.numpy()
            self.losses.setdefault(way, []).append(log_loss(outputs, labels, beta))
            self.gaps.setdefault(way, []).append(calibration_error(reliability(p, right)) or 0.0)
            self.sure.setdefault(way, []).append(p)
        self.right.append(right)

    def summary(self) -> dict[str, Any]:
        """By way; the gain is in cross-entropy over the first way, task by task."""
        right, first = np.concatenate(self.right), np.array(next(iter(self.losses.values())))
        return {
            way: {
                "cross_entropy": mean(losses),
                "gain": mean(first - np.array(losses)),
                "calibration_error": mean(self.gaps[way]),
                "calibration_error_of_all": calibration_error(reliability(np.concatenate(self.sure[way]), right)),
                "confidence": float(np.concatenate(self.sure[way]).mean()),
                "right": float(right.mean()),
                "tasks": len(losses),
            }
            for way, losses in self.losses.items()
        }
