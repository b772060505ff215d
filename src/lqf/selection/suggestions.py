"""What to label next: images of a pool without labels, by what their labels are expected to tell.

- ``information``: the images whose labels make the outputs of the whole pool most certain, jointly
  (`lqf.selection.greedy`). Outputs of a linear model are uncertain where no training image is similar; what class is
  predicted does not matter.
- ``uncertainty``: the images between two classes, one by one: 1 minus the margin of the two most probable ones.
- ``both``: information about images for which it matters. A score moves the probability p of its class by p(1 − p), so
  that an image counts in the pool by 1 − Σp²: little where its class is clear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from lqf.data import Images, Samples, select_images
from lqf.data.manifests import whole_path
from lqf.data.sources import FileSource
from lqf.errors import LQFError
from lqf.fitting import TrainingTable
from lqf.selection.covariance import Uncertain
from lqf.selection.greedy import Taken, most_informative
from lqf.utils.exactness import Answer
from lqf.utils.frames import Tabular
from lqf.utils.text import counted, listed

INFORMATION, UNCERTAINTY, BOTH = "information", "uncertainty", "both"
WAYS = (INFORMATION, UNCERTAINTY, BOTH)


@dataclass(frozen=True, kw_only=True, repr=False)
class Suggestions(Tabular, Answer):
    """Images to label next, the most useful first; its value are their scores (k,).

    Attributes:
        by: how they were chosen.
        images: (k,) their numbers in the pool.
        samples: the pool.
        predicted: (k,) classes by the model as it is.
        probabilities: (k,) of these.
        copies: images of the pool with the same contents as another one there, which were left out.
        skipped: (id, reason) of the images that could not be read.
    """

    by: str
    images: Tensor
    samples: Samples
    predicted: tuple[str, ...]
    probabilities: tuple[float, ...]
    copies: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.images)

    def _about(self) -> str:
        return f"{counted(len(self), 'image')} of {len(self.samples):,} by {self.by}"

    @property
    def ids(self) -> tuple[str, ...]:
        """(k,) of the images."""
        return tuple(self.samples.ids[i] for i in self.images.tolist())

    def rows(self) -> list[dict[str, Any]]:
        """One for every image, with its whole path where it has one."""
        files = isinstance(self.samples.source, FileSource)
        return [
            {
                "path": whole_path(self.samples, i) if files else self.samples.ids[i],
                "rank": rank,
                "score": score,
                "predicted": name,
                "probability": p,
            }
            for rank, (i, score, name, p) in enumerate(
                zip(self.images.tolist(), self.value.tolist(), self.predicted, self.probabilities, strict=True), 1
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        rows = [{"id": name} | row for name, row in zip(self.ids, self.rows(), strict=True)]
        return {
            "by": self.by,
            "pool": len(self.samples),
            "k": len(self),
            "level": self.level,
            "note": self.note,
            "copies": list(self.copies),
            "skipped": [list(pair) for pair in self.skipped],
            "suggestions": rows,
        }


def check_way(by: str, k: int) -> None:
    """Refuse what cannot be asked for."""
    if by not in WAYS:
        raise LQFError(f"by is {by!r}; choose one of {', '.join(WAYS)}")
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise LQFError(f"k is {k!r}; give a whole number of images, 1 or more")


def check_apart(pool: Images, train: TrainingTable) -> None:
    """Refuse a pool that has training images, by their contents."""
    known = dict(zip(train.hashes, train.ids, strict=True))
    again = [name for name, digest in zip(pool.samples.ids, pool.hashes, strict=True) if digest in known]
    if again:
        raise LQFError(
            f"{counted(len(again), 'image')} of the pool {pool.samples.name} "
            f"{'is' if len(again) == 1 else 'are'} among the training images, by the contents: {listed(again, 5)}; "
            "leave out of the pool what has a label"
        )


def without_copies(pool: Images) -> tuple[Images, tuple[str, ...]]:
    """The images whose contents come for the first time, and the ids of the others."""
    first: dict[str, int] = {}
    for i, digest in enumerate(pool.hashes):
        first.setdefault(digest, i)
    keep = np.array(sorted(first.values()), dtype=np.int64)
    if len(keep) == len(pool):
        return pool, ()
    left = np.setdiff1d(np.arange(len(pool)), keep)
    return select_images(pool, keep), tuple(pool.samples.ids[i] for i in left)


def check_enough(pool: Images, k: int, copies: Sequence[str]) -> None:
    """Refuse to choose more images than there are."""
    if k > len(pool):
        what = counted(len(pool), "different image" if copies else "image")
        raise LQFError(
            f"{counted(k, 'image')} of {what} in {pool.samples.name} cannot be chosen; "
            f"give k = {len(pool)} or less, or more images"
        )


def by_margin(probabilities: Tensor, k: int) -> Taken:
    """The k images with the smallest margin between their two most probable classes."""
    two = probabilities.topk(2, 1).values
    scores = 1 - (two[:, 0] - two[:, 1])
    order = scores.argsort(descending=True, stable=True)[:k]
    return Taken(order, scores[order])


def by_information(uncertain: Uncertain, k: int, probabilities: Tensor | None = None) -> Taken:
    """The k images that tell most together about the pool; with probabilities (Q, n_classes), about its classes."""
    weights = None if probabilities is None else 1 - probabilities.square().sum(1)
    return most_informative(uncertain.covariance, uncertain.noise, k, weights)
