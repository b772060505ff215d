"""How fast a network is on this machine, and from that how long each rung takes.

The unit is one pass of one row through the network, timed on a few images. A rung is so many passes of so many rows and
some seconds that do not depend on the data; both were counted on one machine of either kind. What the last fits of the
same network on this machine took, relative to what was predicted for them, corrects the prediction
(`lqf.runtime.timings`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from lqf.backbones import Backbone
from lqf.data import Images, Preprocess, normalize
from lqf.fitting.context import Context
from lqf.runtime.timings import recall, remember

ROWS = {"cpu": 8, "cuda": 64}
"""Images that are timed."""
WORK = {
    "head": {"cpu": (1.15, 0.5), "cuda": (1.5, 3.0)},
    "views": {"cpu": (1.1, 0.3), "cuda": (1.5, 1.0)},
    "linear": {"cpu": (150.0, 3.0), "cuda": (25.0, 12.0)},
    "continued": {"cpu": (80.0, 1.0), "cuda": (14.0, 4.0)},
    "moved": {"cpu": (150.0, 3.0), "cuda": (35.0, 25.0)},
}
"""Passes per row, and seconds, of each kind of rung."""
LEAST, MOST = 0.3, 3.0
"""By which factors past fits correct a prediction, at the least and at the most."""


@dataclass(frozen=True)
class Pace:
    """Seconds of a row's pass, and how predictions were off before.

    Attributes:
        row: seconds of one row through the network.
        device: "cpu" or "cuda".
        corrections: actual over predicted time of the last fits, by kind of rung.
        key: under which they are remembered.
    """

    row: float
    device: str
    corrections: Mapping[str, float] = field(default_factory=dict)
    key: str = ""

    @classmethod
    def measure(cls, images: Images, preprocess: Preprocess, backbone: Backbone, context: Context) -> Pace:
        """Time the network on a few images, in the first process for all."""
        device = context.device
        key = f"rungs of {backbone.name} at {preprocess.size} px, {context.settings.dtype}"
        seconds = context.world.first(lambda: seconds_of_row(images, preprocess, backbone, context))
        known = context.world.first(lambda: recall(key, device))
        corrections = {k: float(v) for k, v in known.items()} if isinstance(known, dict) else {}
        return cls(seconds, device.type, corrections, key)

    def seconds(self, kind: str, rows: int, share: float = 1.0) -> float:
        """Of a rung over so many rows; ``share``: of a pass that its part of the network takes."""
        passes, fixed = WORK[kind][self.device]
        correction = min(max(self.corrections.get(kind, 1.0), LEAST), MOST)
        return correction * (passes * share * rows * self.row + fixed)

    def learn(self, kind: str, predicted: float, actual: float, device: torch.device) -> None:
        """Remember how a prediction was off."""
        if predicted > 0 and actual > 0:
            off = self.corrections.get(kind, 1.0) * actual / predicted
            remember(self.key, device, {**self.corrections, kind: off})


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
