"""The deletion certificate: what was forgotten, how near the model is to the optimum without it, and what that proves.

It stands on its own, outside the model's folder, in which nothing of the forgotten samples stays; ids are in it as
hashes alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lqf.changes.samples.members import about
from lqf.changes.samples.outcome import Outcome
from lqf.utils.text import counted

FORMAT, VERSION = "lqf-deletion-certificate", 1
QUADRATIC = (
    "It certifies the quadratic problem at the point that was kept: the weights are those that solving it without the "
    "forgotten samples gives, up to the bound. That is not yet a deletion: other parts of the model, which are named, "
    "have seen them and stay."
)
DELETED = (
    "Everything was made again from the samples that are left: the model is that of a fit that never saw the others."
)
NOTHING_LEFT = (
    "It certifies the quadratic problem at the point that was kept, and nothing else in the model was chosen or made "
    "with the forgotten samples."
)


@dataclass(frozen=True)
class DeletionCertificate:
    """What one call of `forget` did, and what that proves.

    Attributes:
        forgotten: sha256 of the ids of the samples that were forgotten.
        remaining: number of samples that are left.
        strict: whether everything was made again.
        members: what became of the model, or of each member of a stack.
        depends_on: parts of the model that have seen the forgotten samples and stay.
        difference: largest difference of a prediction from a refit's; None where that was not asked for.
        scale: largest prediction of the refit, in the same units; None likewise.
        seconds: that it took.
    """

    forgotten: tuple[str, ...]
    remaining: int
    strict: bool
    members: tuple[Outcome, ...]
    depends_on: tuple[str, ...]
    difference: float | None = None
    scale: float | None = None
    seconds: float = 0.0

    @property
    def residual(self) -> float | None:
        """The largest ‖Hδ − b‖ of all members, on the remaining data; None where none was solved again."""
        return max((m.residual for m in self.members if m.residual is not None), default=None)

    @property
    def bound(self) -> float | None:
        """The largest bound of ‖δ − δ*‖; None likewise."""
        return max((m.bound for m in self.members if m.bound is not None), default=None)

    @property
    def statement(self) -> str:
        """What it proves."""
        return DELETED if self.strict else QUADRATIC if self.depends_on else NOTHING_LEFT

    def __repr__(self) -> str:
        return f"DeletionCertificate({counted(len(self.forgotten), 'sample')} forgotten; {self.sentence})"

    @property
    def sentence(self) -> str:
        """One line."""
        parts = ["fitted again without them" if self.strict else "solved again without them"]
        if self.bound is not None:
            parts.append(f"‖Hδ − b‖ = {self.residual:.2g}, so that ‖δ − δ*‖ ≤ {self.bound:.2g}")
        if self.difference is not None:
            parts.append(f"no prediction differs from a refit's by more than {self.difference:.2g}")
        return "; ".join([*parts, *filter(None, [about(self.members)])])

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "ids_sha256": list(self.forgotten),
            "forgotten": len(self.forgotten),
            "remaining": self.remaining,
            "strict": self.strict,
            "residual": self.residual,
            "bound": self.bound,
            "members": [m.to_dict() for m in self.members],
            "depends_on": list(self.depends_on),
            "largest_difference_to_refit": self.difference,
            "largest_output_of_refit": self.scale,
            "statement": self.statement,
            "seconds": self.seconds,
        }


def hashed(ids: Sequence[str]) -> tuple[str, ...]:
    """sha256 of every id, sorted: their order says nothing."""
    return tuple(sorted(hashlib.sha256(name.encode()).hexdigest() for name in ids))
