"""What quick answers of a model were worth: their correlation with the exact ones that followed, image by image.

It is measured whenever an exact answer was asked for, which knows the quick one on its way, and kept beside what the
fit knew (`lqf.fitting.knowledge`) in a file of its own, for the quick answers of other days.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from lqf.fitting import FittedModel
from lqf.fitting.knowledge import StoredKnowledge
from lqf.utils import naming
from lqf.utils.files import write_file
from lqf.utils.json_values import dump_json
from lqf.utils.regular import NotRegular, read_regular
from lqf.utils.text import counted

FILE = "quick_answers.json"
LIMIT = 1 << 16
"""Bytes that are read."""
LATEST = 1000
"""Images that are kept."""
ELSEWHERE = (
    "with EfficientNet-Lite0, 20 flowers of 5 kinds at 32 px and 10 images asked about it was 0.99 (0.98 at worst)"
)
"""As `benchmarks/questions.py` has measured it."""


@dataclass
class QuickWorth:
    """Correlations of a model's quick answers with its exact ones.

    Attributes:
        place: the file they are kept in; None: they are not.
        of: hash of what the fit knew, which says whose they are.
        say: told where the file cannot be read or written.
        found: a correlation for every image.
    """

    place: Path | None
    of: str
    say: Callable[[str], None]
    found: list[float] = field(default_factory=list)

    @classmethod
    def known(cls, model: FittedModel, say: Callable[[str], None], *, writes: bool = True) -> QuickWorth:
        """What is known of a model; where it is stored, with what was measured before.

        ``writes``: whether what is measured is kept; one of many processes does so.
        """
        if not isinstance(model.known, StoredKnowledge):
            return cls(None, "", say)
        worth = cls(model.known.path.with_name(FILE), model.known.sha256, say)
        worth.found = worth._read()
        return worth if writes else replace(worth, place=None)

    def add(self, quick: Tensor, exact: Tensor) -> None:
        """Of answers (U, Q) to the same question."""
        self.found = [*self.found, *(r for r in correlations(quick, exact).tolist() if math.isfinite(r))][-LATEST:]
        self._write()

    @property
    def note(self) -> str:
        """For the label of a quick answer."""
        if not self.found:
            exact = naming.either("--exact", "quick=False")
            return f"its correlation with exact answers was not measured on this model ({exact} does); {ELSEWHERE}"
        middle, lowest = statistics.median(self.found), min(self.found)
        images = counted(len(self.found), "image")
        return f"its correlation with exact answers of this model was {middle:.2f} ({images}, lowest {lowest:.2f})"

    def _read(self) -> list[float]:
        assert self.place is not None
        if not self.place.exists():
            return []
        try:
            kept = json.loads(read_regular(self.place, LIMIT))
            return _numbers(kept["correlations"]) if kept["of"] == self.of else []
        except (OSError, NotRegular, ValueError, KeyError, TypeError) as error:
            self.say(f"`{self.place}` cannot be read ({error}); what quick answers are worth is measured again")
            return []

    def _write(self) -> None:
        if self.place is None or not self.place.parent.is_dir():
            return
        try:
            write_file(self.place, dump_json({"of": self.of, "correlations": self.found}, indent=None))
        except OSError as error:
            why = error.strerror or error
            self.say(f"`{self.place}` cannot be written ({why}); what quick answers are worth is not kept")


def correlations(quick: Tensor, exact: Tensor) -> Tensor:
    """(Q,) Pearson's, over the units, of answers (U, Q)."""
    a, b = (t - t.mean(0) for t in (quick, exact))
    return (a * b).sum(0) / (a.square().sum(0) * b.square().sum(0)).sqrt().clamp_min(1e-300)


def _numbers(values: Sequence[float]) -> list[float]:
    found = [float(v) for v in values]
    if not all(-1.001 <= v <= 1.001 for v in found):
        raise ValueError("not correlations")
    return found
