"""As many training images as a time limit suffices for: to read them, and to fit the head, which comes first.

A few of them are read and passed through the network. Where all would take too long, a part is taken, the same share of
every class but two images of each before anything else.
"""

from __future__ import annotations

import bisect
import time
from dataclasses import asdict
from typing import Any

import numpy as np

from lqf.backbones import Backbone
from lqf.data import Preprocess, Samples, open_images
from lqf.errors import LQFError
from lqf.fitting.context import Context
from lqf.fitting.rungs.heads import head_seconds
from lqf.fitting.rungs.pace import Pace
from lqf.linear.targets import n_outputs
from lqf.utils import naming
from lqf.utils.text import rough_duration

PROBED = 16
"""Images that are timed."""
SHARE = 0.7
"""Of the time that is left, for reading the images and the first head."""


def within_time(
    samples: Samples, preprocess: Preprocess, backbone: Backbone, context: Context
) -> tuple[Samples, Pace | None]:
    """The samples, or a part of them, which is said; and how fast the network is, where that was measured."""
    if not context.deadline:
        return samples, None
    n, found = context.world.first(lambda: _affordable(samples, preprocess, backbone, context))
    pace = None if found is None else Pace(**found)
    if n >= len(samples):
        return samples, pace
    left = context.world.first(context.deadline.left)
    context.progress.say(
        f"{rough_duration(left)} suffice for about {n:,} of {len(samples):,} images, drawn from all classes; a longer "
        f"{naming.name('time_limit')} uses all"
    )
    return samples.select(np.sort(spread_over_classes(samples.labels, context.settings.seed)[:n])), pace


def _affordable(
    samples: Samples, preprocess: Preprocess, backbone: Backbone, context: Context
) -> tuple[int, dict[str, Any] | None]:
    """How many images can be read, and have their head, in the time that is left; and the pace."""
    some = spread_over_classes(samples.labels, context.settings.seed)[:PROBED]
    began = time.perf_counter()
    try:
        images = open_images(samples.select(np.sort(some)), preprocess)
    except LQFError:  # none of them can be read; the whole set may be better, or says what is wrong
        return len(samples), None
    reading = (time.perf_counter() - began) / len(some)
    pace = Pace.measure(images, preprocess, backbone, context)
    left, outputs = SHARE * context.deadline.left(), n_outputs(len(samples.classes))

    def fits(n: int) -> bool:
        head = head_seconds(pace, context.settings, backbone, n * preprocess.n_views, outputs)
        return n * reading + head <= left

    if fits(len(samples)):
        return len(samples), asdict(pace)
    least = len(samples.classes)
    return max(least, bisect.bisect_left(range(len(samples)), True, key=lambda n: not fits(n)) - 1), asdict(pace)


def spread_over_classes(labels: np.ndarray, seed: int) -> np.ndarray:
    """All sample numbers, in an order of which every beginning has the classes' own shares, two of each class first."""
    generator = np.random.default_rng(seed)
    place = np.empty(len(labels))
    for k in np.unique(labels):
        own = generator.permutation(np.flatnonzero(labels == k))
        place[own] = np.arange(len(own))
        place[own[2:]] = 2 + (np.arange(2, len(own)) + generator.random()) / len(own)
    return np.lexsort((generator.random(len(labels)), place))
