"""Corrections of labels that somebody has made on the page and not applied yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Correction:
    """What is to become of one training image: another label, or nothing of it (``label`` None)."""

    label: str | None

    @property
    def action(self) -> str:
        """In a word."""
        return "exclude" if self.label is None else "relabel"


@dataclass
class Corrections:
    """By number of the sample, each step of which can be undone."""

    now: dict[int, Correction] = field(default_factory=dict)
    _before: list[tuple[int, Correction | None]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.now)

    def set(self, sample: int, correction: Correction | None) -> None:
        """Correct a sample; None: it stays as it was given."""
        before = self.now.get(sample)
        if before == correction:
            return
        self._before.append((sample, before))
        self._put(sample, correction)

    def undo(self) -> int | None:
        """Take the last step back; the sample that it was about, None where there is none."""
        if not self._before:
            return None
        sample, before = self._before.pop()
        self._put(sample, before)
        return sample

    @property
    def steps(self) -> int:
        """That can be undone."""
        return len(self._before)

    @property
    def excluded(self) -> list[int]:
        """Samples to leave out."""
        return sorted(i for i, c in self.now.items() if c.label is None)

    @property
    def relabelled(self) -> dict[int, str]:
        """Samples with another label."""
        return {i: c.label for i, c in sorted(self.now.items()) if c.label is not None}

    def change(self) -> dict[str, Any]:
        """As arguments of `Analysis.what_if`."""
        return {"without": self.excluded, "relabel": self.relabelled}

    def _put(self, sample: int, correction: Correction | None) -> None:
        if correction is None:
            self.now.pop(sample, None)
        else:
            self.now[sample] = correction
