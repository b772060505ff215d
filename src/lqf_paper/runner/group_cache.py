"""What the cells of one group share inside a process: features, K-FAC, the channels of bilinear pooling.

They depend on the images, the network and the head at the linearisation point, not on the learning rate or the weight
decay. Cells that differ in those alone follow one another, so it is enough to keep the things of the last group.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class GroupCache:
    """Values by name, under one key at a time.

    Example:
        >>> kept = GroupCache()
        >>> kept.under("birds").get("features", lambda: 1), kept.under("birds").get("features", lambda: 2)
        (1, 1)
        >>> kept.under("flowers").get("features", lambda: 3)
        3
    """

    def __init__(self) -> None:
        self._key: Hashable = None
        self._values: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._values)

    def under(self, key: Hashable) -> GroupCache:
        """This, for the values of a group; those of any other are let go."""
        if key != self._key:
            self._values.clear()
            self._key = key
        return self

    def get(self, name: Hashable, make: Callable[[], T]) -> T:
        """The value of this name, made where it is not there. ``name`` says all it depends on apart from the key."""
        if name not in self._values:
            self._values[name] = make()
        return self._values[name]
