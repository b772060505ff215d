"""How fast a network is on this machine, and from that how long each rung takes.

The unit is one pass of one row through the network, timed on a few images. A rung is so many passes of so many rows,
some seconds that do not depend on the data (both were counted on one machine of either kind), and the algebra of its
heads. What the last fits of the same network on this machine took, relative to what was predicted for them, corrects
the prediction (`lqf.runtime.timings`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess, normalize
from lqf.fitting.context import Context
from lqf.fitting.folds import FOLDS
from lqf.fitting.head_folds import NESTED_ROWS
from lqf.runtime.timings import recall, remember
from lqf.solvers.rates import multiply_adds

ROWS = {"cpu": 8, "cuda": 64}
"""Images that are timed."""
WORK = {
    "head": {"cpu": (1.15, 0.5), "cuda": (1.5, 3.0)},
    "views": {"cpu": (1.1, 0.3), "cuda": (1.5, 1.0)},
    "last": {"cpu": (150.0, 3.0), "cuda": (25.0, 12.0)},
    "linear": {"cpu": (150.0, 3.0), "cuda": (25.0, 12.0)},
    "continued": {"cpu": (80.0, 1.0), "cuda": (14.0, 4.0)},
    "moved": {"cpu": (300.0, 5.0), "cuda": (60.0, 30.0)},
    "finetuned": {"cpu": (3.5, 5.0), "cuda": (2.5, 12.0)},
    "finetuned through": {"cpu": (4.5, 5.0), "cuda": (3.5, 15.0)},
}
"""Passes per row, and seconds, of each kind of rung."""
LEAST, MOST = 0.3, 3.0
"""By which factors past fits correct a prediction, at the least and at the most."""
NEW = 0.5
"""What the last fit adds to a correction; the rest is that of the fits before."""
SHORT = 2.0
"""Seconds so short that a rung of their length says little about longer ones."""
STRENGTHS = 30
"""Ridge strengths that a head is tried with."""


@dataclass(frozen=True)
class Pace:
    """Seconds of a row's pass, and how predictions were off before.

    Attributes:
        row: seconds of one row through the network.
        flops: multiply-adds a second of a matrix product.
        device: "cpu" or "cuda".
        corrections: actual over predicted time of the last fits, by kind of rung.
        key: under which they are remembered.
    """

    row: float
    flops: float
    device: str
    corrections: Mapping[str, float] = field(default_factory=dict)
    key: str = ""

    @classmethod
    def measure(cls, images: Images, preprocess: Preprocess, backbone: Backbone, context: Context) -> Pace:
        """Time the network on a few images of this process."""
        key = f"rungs of {backbone.name} at {preprocess.size} px, {context.settings.dtype}"
        row = seconds_of_row(images, preprocess, backbone, context)
        flops = multiply_adds(torch.empty(0, dtype=context.dtype, device=context.device), fast=False)
        known = recall(key, context.device)
        corrections = {k: float(v) for k, v in known.items()} if isinstance(known, dict) else {}
        return cls(row, flops, context.device.type, corrections, key)

    def seconds(self, kind: str, rows: int, share: float = 1.0, algebra: float = 0.0) -> float:
        """Of a rung over so many rows.

        Args:
            kind: in `WORK`.
            rows: that pass through the network.
            share: of a pass that its part of the network takes.
            algebra: multiply-adds in addition.
        """
        passes, fixed = WORK[kind][self.device]
        return self._correction(kind) * (passes * share * rows * self.row + fixed + algebra / self.flops)

    def _correction(self, kind: str) -> float:
        return min(max(self.corrections.get(kind, 1.0), LEAST), MOST)

    def learn(self, kind: str, predicted: float, actual: float, device: torch.device) -> Pace:
        """Remember how a prediction was off."""
        if predicted <= 0 or actual <= 0 or not self.key:
            return self
        weight = NEW if kind in self.corrections else 1.0
        off = self._correction(kind) * ((actual + SHORT) / (predicted + SHORT)) ** weight
        learnt = replace(self, corrections={**self.corrections, kind: off})
        remember(self.key, device, learnt.corrections)
        return learnt


def head_algebra(rows: int, features: int, outputs: int, heads: int = 1) -> float:
    """Multiply-adds of a closed-form head in float64: kernel, factorisation, all strengths by leave-one-out, and the
    same without each fold where the rows are few; ``heads``: on as many parts of the features.
    """
    side, again = min(rows, features + 1), FOLDS if rows <= NESTED_ROWS else 0
    kernel = 2.5 * rows * side * features
    return kernel * (1 + again) + heads * (1 + again) * (9.0 * side**3 + STRENGTHS * 2.0 * rows * side * (outputs + 8))


def seconds_of_row(images: Images, preprocess: Preprocess, backbone: Backbone, context: Context) -> float:
    """One row's pass forward."""
    device, dtype = context.device, context.dtype
    body = backbone.body.to(device=device, dtype=dtype)
    rows = [images.own.start + i for i in range(min(ROWS[device.type], len(images.own)))]
    x = normalize(images.batch(rows).to(device), preprocess, dtype)
    return seconds_of_pass(lambda: body(x), device) / len(x)


@torch.no_grad()
def seconds_of_pass(compute: Callable[[], object], device: torch.device) -> float:
    """The shorter of two calls, after one that loads kernels."""
    best = math.inf
    for call in range(3):
        began = time.perf_counter()
        compute()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = best if call == 0 else min(best, time.perf_counter() - began)
    return best
