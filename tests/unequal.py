"""Small sets of which one class has far fewer samples than the others, and losses in which every class counts alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from fits import data, pictures

RARE = 2
"""The class with few samples."""


def vectors(n: int = 42, few: int = 4, *, signal: float = 0.6, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """(28 + few, 3, 4) normal numbers, 14 of the classes 0 and 1."""
    return _few(*data(n, signal=signal, seed=seed), few)


def photos(n: int = 24, few: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """(16 + few, 10, 10, 3) uint8, 8 of the classes 0 and 1."""
    return _few(*pictures(n), few)


def _few(x: np.ndarray, y: np.ndarray, few: int) -> tuple[np.ndarray, np.ndarray]:
    keep = (y != RARE) | (np.cumsum(y == RARE) <= few)
    return x[keep], y[keep]


def factors(y: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Of every class: scikit-learn's "balanced", with sample weights as it has them since version 1.7."""
    s = np.ones(len(y)) if weights is None else weights
    return s.sum() / (len(np.unique(y)) * np.bincount(y, s))


def balanced_loss(outputs: Tensor, labels: Any) -> float:
    """Mean over the classes of their mean cross-entropies, at the temperature that makes it least."""
    labels = torch.as_tensor(labels)

    def at(log_beta: float) -> float:
        losses = torch.nn.functional.cross_entropy(np.exp(log_beta) * outputs, labels, reduction="none")
        return float(torch.stack([losses[labels == k].mean() for k in labels.unique()]).mean())

    return float(minimize_scalar(at, bounds=(-6, 4), method="bounded", options={"xatol": 1e-9}).fun)
