"""Training images that are held out of a fit, in proportion to their classes."""

from __future__ import annotations

import numpy as np


def held_out(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """A mask of ``share`` of every class, at random; a class of up to two images keeps them."""
    rng, out = np.random.default_rng(seed), np.zeros(len(labels), bool)
    for y in np.unique(labels):
        rows = np.flatnonzero(labels == y)
        most = max(0, len(rows) - 2)
        out[rng.permutation(rows)[: min(most, max(1, round(share * len(rows))))]] = True
    return out
