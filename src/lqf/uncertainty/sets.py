"""Sets of classes that hold the right one with a chosen probability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from lqf.data.labels import class_array
from lqf.errors import LQFError
from lqf.utils import naming
from lqf.utils.exactness import Answer
from lqf.utils.frames import Tabular
from lqf.utils.text import counted, listed, percent

WAYS = ("jackknife+", "minmax", "jackknife")
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, repr=False)
class PredictionSets(Tabular, Answer):
    """Conformal sets of several images.

    Its value are the p-values (Q, n_classes) of all classes, so that sets at any coverage follow (`at`). A set may be
    empty: the image is then less like every class than training images are like theirs.

    Attributes:
        coverage: share of sets that are to hold the right class.
        way: one of `WAYS`.
        classes: names.
        ids: (Q,) of the images.
        smallest: (n_classes,) the smallest p that a class can have.
    """

    coverage: float
    way: str
    classes: tuple[str, ...]
    ids: tuple[str, ...]
    smallest: Tensor

    def _about(self) -> str:
        mean = f", {self.sizes.mean():.2f} classes on average" if len(self) else ""
        return f"{counted(len(self), 'image')} at coverage {self.coverage:g}{mean}; {self.way}"

    def __len__(self) -> int:
        return len(self.value)

    @property
    def p_values(self) -> np.ndarray:
        """(Q, n_classes)."""
        return self.value.numpy()

    @property
    def included(self) -> np.ndarray:
        """(Q, n_classes) whether a class is in the set."""
        return (self.value > self._alpha).numpy()

    @property
    def sizes(self) -> np.ndarray:
        """(Q,) numbers of classes."""
        return self.included.sum(1)

    @property
    def sets(self) -> list[tuple[Any, ...]]:
        """The classes of every image, as `predict` names them, the most plausible first."""
        labels, order = class_array(self.classes).tolist(), np.argsort(-self.p_values, 1, kind="stable")
        return [tuple(labels[k] for k in by if row[k]) for by, row in zip(order, self.included, strict=True)]

    @property
    def guarantee(self) -> float | None:
        """Least coverage that is proven for images that are exchangeable with the training images; None: nothing is."""
        return {"jackknife+": max(round(2 * self.coverage - 1, 12), 0.0), "minmax": self.coverage}.get(self.way)

    @property
    def promise(self) -> str:
        """What is proven, as a sentence."""
        if self.guarantee is None:
            return "by leave-one-out scores against the model of all samples, about whose coverage nothing is proven"
        name = {"minmax": "jackknife-minmax"}.get(self.way, self.way)
        return f"by {name}, proven to cover {percent(self.guarantee)} of images that come as the training images came"

    @property
    def limit(self) -> str | None:
        """A sentence where some classes can never be ruled out at this coverage, for want of training samples."""
        never = (self.smallest > self._alpha).tolist()
        if not any(never):
            return None
        have = round(1 / float(self.smallest.max())) - 1
        needed = math.ceil(self.coverage / (1 - self.coverage) - _ROUNDING)
        few = f"{counted(have, 'training sample')} {'is' if have == 1 else 'are'} too few for a coverage of"
        few = f"{few} {self.coverage:g}, which needs {needed:,}"
        if all(never):
            return f"{few}: every set has all classes"
        return (
            f"{few} of every class: every set has {listed([c for c, n in zip(self.classes, never, strict=True) if n])}"
        )

    def at(self, coverage: float) -> PredictionSets:
        """The same images at another coverage."""
        check_coverage(coverage)
        return replace(self, coverage=coverage)

    def covered(self, labels: Sequence[int] | Tensor | np.ndarray) -> np.ndarray:
        """(Q,) whether the set holds the class of this number."""
        return self.included[np.arange(len(self)), np.asarray(labels)]

    def rows(self) -> list[dict[str, Any]]:
        """One for every image: its classes, the most plausible first."""
        pairs = zip(self.ids, self.sets, strict=True)
        return [{"id": name, "classes": classes, "size": len(classes)} for name, classes in pairs]

    def to_dict(self) -> dict[str, Any]:
        """What holds for all of them, for JSON."""
        return {
            "coverage": self.coverage,
            "way": self.way,
            "guarantee": self.guarantee,
            "promise": self.promise,
            "mean_size": float(self.sizes.mean()),
            "empty": int((self.sizes == 0).sum()),
            "level": self.level,
            "note": self.note,
            "limit": self.limit,
        }

    @property
    def _alpha(self) -> float:
        """p from which on a class is in; where p is 1 − c but for rounding, it is not."""
        return 1 - self.coverage + _ROUNDING


def check_coverage(coverage: float) -> None:
    """Refuse what is not a share between 0 and 1."""
    number = isinstance(coverage, int | float) and not isinstance(coverage, bool)
    if not number or not 0 < coverage < 1:
        raise LQFError(
            f"{naming.either('--sets', 'coverage')} is {coverage!r}; give the share of sets that are to hold the right "
            "class, above 0 and below 1, e.g. 0.9"
        )
