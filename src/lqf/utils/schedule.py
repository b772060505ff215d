"""How a learning rate falls in the course of a run."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["cosine", "steps", "constant"]
DROP_AT = 2 / 3
"""Share of a run after which "steps" divides the rate by ten."""


def rate(schedule: str, done: float) -> float:
    """Factor of the learning rate when a share ``done`` of the run is over."""
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * done))
    return 1.0 if schedule == "constant" or done < DROP_AT else 0.1
