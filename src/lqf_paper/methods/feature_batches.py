"""The mini-batches of a last layer: features of random views under the frozen network, many views at a time.

The views of a run follow from its seed alone, so runs that differ in their rates see the same features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from lqf.training.random_views import RandomViews
from lqf.training.stream import drawn

Step = tuple[Tensor, Tensor]
"""Row numbers (b,) and features (b, p) of one step."""
BATCHES = 8
"""So many mini-batches go through the network together; it is in eval mode, and no image depends on the others."""


def feature_batches(
    views: RandomViews, n: int, epochs: int, batch: int, seed: int, encode: Callable[[Tensor], Tensor]
) -> Iterator[Step]:
    """As `lqf.training.stream.stream`, with ``encode`` of the pixels."""
    order, windows = drawn(views, n, epochs, seed)
    whole = len(order) // batch * batch
    for at in range(0, whole, batch * BATCHES):
        here = slice(at, min(at + batch * BATCHES, whole))
        z = encode(views.batch(order[here], windows and windows[here]))
        yield from zip(order[here].split(batch), z.split(batch), strict=True)
