"""What a search for strengths has found: the loss at pairs of them, the way downhill, and the best."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lqf.changes.tuning.plot import save_plot
from lqf.changes.tuning.strengths import Tried
from lqf.utils.exactness import Level
from lqf.utils.frames import data_frame
from lqf.utils.text import counted, percent

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = ("weight_decay", "body_weight_decay", "error", "loss", "passes", "step")
LEAVE_ONE_OUT, VALIDATION = "leave-one-out", "validation"


@dataclass(frozen=True, repr=False)
class TuningPath:
    """Models at other strengths, judged by images that they have not seen.

    Attributes:
        by: "leave-one-out" or "validation".
        n: images that judge.
        level: how exact the figures are.
        note: what stands behind that.
        current: the model as it is.
        grid: at factors of both of its strengths.
        descent: from the best of these along the slope of the loss; empty where nothing went further.
    """

    by: str
    n: int
    level: Level
    note: str
    current: Tried
    grid: tuple[Tried, ...]
    descent: tuple[Tried, ...]

    @property
    def best(self) -> Tried:
        """Of all, by the loss."""
        return min((self.current, *self.grid, *self.descent), key=lambda t: t.loss)

    @property
    def passes(self) -> int:
        """Over the training data, for all of them."""
        return sum(t.passes for t in (self.current, *self.grid, *self.descent))

    def to_frame(self) -> DataFrame:
        """A pandas table: `COLUMNS`; ``step`` counts along the way downhill and is missing on the grid."""
        return data_frame([[row[name] for name in COLUMNS] for row in self._rows()], COLUMNS)

    def plot(self, path: str | Path, *, overwrite: bool = False) -> None:
        """A picture (.png, .svg, .pdf): the cross-entropy over both weight decays, and cuts through the best pair."""
        save_plot(self, Path(path), overwrite=overwrite)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "by": self.by,
            "n": self.n,
            "level": self.level,
            "note": self.note,
            "passes": self.passes,
            "current": self.current.to_dict(),
            "best": self.best.to_dict(),
            "grid": [t.to_dict() for t in self.grid],
            "descent": [t.to_dict() for t in self.descent],
        }

    def __repr__(self) -> str:
        best, now = self.best, self.current
        where = decays(best.weight_decay, best.body_weight_decay)
        return (
            f"TuningPath({counted(len(self.grid), 'pair')} of strengths by {self.by} of {counted(self.n, 'image')}; "
            f"now {_said(now)}; best {_said(best)} at {where}; {self.level})"
        )

    def _rows(self) -> list[dict[str, Any]]:
        return [t.to_dict() | {"step": None} for t in self.grid] + [
            t.to_dict() | {"step": k} for k, t in enumerate(self.descent)
        ]


def decays(head: float, body: float | None) -> str:
    """`weight decay 0.012 (head), 0.35 (body)`."""
    return f"weight decay {head:.3g}" if body is None else f"weight decay {head:.3g} (head), {body:.3g} (body)"


def _said(tried: Tried) -> str:
    return f"{percent(tried.error)}, cross-entropy {tried.loss:.3f}"
