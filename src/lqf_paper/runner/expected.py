"""What a cell may take, by the seconds of cells like it that are there already."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from lqf_paper.runner.cells import Store

FREE = ("learning_rate", "weight_decay", "damping")
"""Settings that hardly change what a cell costs."""


@dataclass(frozen=True)
class Measured:
    """A cell, and what it took.

    Attributes:
        data: fingerprint of its data set.
        kind: work, device, network and pixels.
        method: of a search; None: it names none.
        shape: its parameters and settings but for method, seed and what is `FREE`, as text.
        epochs: that it names; None: none, or on few images, where there are as many as make a number of steps.
        seconds: that it took.
        side_by_side: how many processes there were.
    """

    data: str
    kind: str
    method: str | None
    shape: frozenset[str]
    epochs: float | None
    seconds: float
    side_by_side: int

    @classmethod
    def of(cls, identity: Mapping[str, Any], seconds: float = 0.0, side_by_side: int = 1) -> Measured:
        """From a cell's description."""
        params, lab = identity["params"], identity["lab"]
        settings = params.get("settings") or {}
        apart = ("settings", "seed", "method", *FREE)
        shape = frozenset(f"{k} {v}" for k, v in {**params, **settings}.items() if k not in apart)
        kind = json.dumps([identity["work"], *(lab[k] for k in ("device", "backbone", "preprocess"))])
        epochs = None if params.get("shots") else settings.get("epochs")
        return cls(identity["data"], kind, params.get("method"), shape, epochs, seconds, side_by_side)


class Expected:
    """Seconds of cells, from those in a store.

    Args:
        store: finished cells.
        images: fingerprint of a data set -> its training images, as far as they are known.
    """

    def __init__(self, store: Store, images: Mapping[str, int]):
        self.store, self.images = store, dict(images)
        self._measured: dict[str, Measured] = {}

    def seconds(self, identity: Mapping[str, Any], processes: int = 1) -> float | None:
        """The median of the cells most like this one, with so many processes side by side; None: there are none.

        Like: of the same work and method, else of the same work, those with most settings in common (rates, strengths
        and seed do not count), of the same data set where there are any. Others count by images and epochs.
        """
        self._read()
        wanted = Measured.of(identity)
        like = [m for m in self._measured.values() if m.kind == wanted.kind]
        like = [m for m in like if m.method == wanted.method] or like
        most = max((len(m.shape & wanted.shape) for m in like), default=0)
        like = [m for m in like if len(m.shape & wanted.shape) == most]
        like = [m for m in like if m.data == wanted.data] or like
        return median(self._scaled(m, wanted, processes) for m in like) if like else None

    def _scaled(self, like: Measured, wanted: Measured, processes: int) -> float:
        images = [self.images.get(m.data) for m in (wanted, like)]
        larger = images[0] / images[1] if images[0] and images[1] and like.data != wanted.data else 1.0
        longer = wanted.epochs / like.epochs if wanted.epochs and like.epochs else 1.0
        crowd = processes / like.side_by_side  # more share the device at worst in proportion; fewer gain less than that
        return like.seconds * larger * longer * (crowd if crowd > 1 else math.sqrt(crowd))

    def _read(self) -> None:
        """Take in the cells that have come since."""
        for path in self.store.folder.glob("*.json"):
            if path.name not in self._measured:
                record = json.loads(path.read_text(encoding="utf-8"))
                identity, n = record["identity"], record["result"].get("n")
                self._measured[path.name] = Measured.of(identity, record["seconds"], record["side_by_side"])
                if n is not None and identity["params"].get("shots") is None:
                    self.images.setdefault(identity["data"], n)
