"""Explanations of several predictions: to read, to look at, as a table, as a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from lqf.analysis import Analysis, Contrast, Queries, WhatIf
from lqf.analysis.quick_worth import correlations
from lqf.data import Samples
from lqf.reports.explanation import Explanation, explanations
from lqf.reports.html.explain import explain_page, explain_sheet
from lqf.utils import naming
from lqf.utils.files import check_file, write_file
from lqf.utils.frames import data_frame
from lqf.utils.json_values import dump_json
from lqf.utils.notebook import Shown
from lqf.utils.text import counted, duration, percent, shortened

if TYPE_CHECKING:
    from pandas import DataFrame

SUFFIXES = (".html", ".png", ".json")
"""Of files that `Explanations.save` writes."""
COLUMNS = ("image", "predicted", "probability", "side", "rank", "training", "label", "size", "change", "without")
SOON = 20.0
"""Seconds in which an exact answer is worth waiting for unasked."""
_PRINTED = 3


@dataclass(frozen=True, eq=False, repr=False)
class Explanations(Shown, Sequence[Explanation]):
    """One `Explanation` for every image that was asked about; made by `LQFClassifier.explain`.

    Attributes:
        items: the explanations.
        queries: the images that were asked about.
        train: the training samples.
        level: how exact the effects are.
        note: what stands behind the level.
        left_out: training samples without which the images were predicted again, by name.
        what_if: these predictions; None: nothing was left out.
    """

    items: tuple[Explanation, ...]
    queries: Samples
    train: Samples
    level: str
    note: str = ""
    left_out: tuple[str, ...] = ()
    what_if: WhatIf | None = None

    @overload
    def __getitem__(self, index: int) -> Explanation: ...
    @overload
    def __getitem__(self, index: slice) -> Explanations: ...
    def __getitem__(self, index: int | slice) -> Explanation | Explanations:
        return replace(self, items=self.items[index]) if isinstance(index, slice) else self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        lines = [f"Explanations({counted(len(self), 'image')}; {self.level})"]
        lines += [f"  {shortened(e.id, 36)}: {_strongest(e)}" for e in self.items[:_PRINTED]]
        more = len(self) - _PRINTED
        return "\n".join(lines) + (f"\n  … and {more:,} more" if more > 0 else "")

    def to_dict(self) -> dict[str, Any]:
        """As JSON values: what `lqf explain --json` prints."""
        return {
            "explanations": [e.to_dict() | self._without(e) for e in self.items],
            "n": len(self),
            "level": self.level,
            "note": self.note,
        }

    def to_frame(self) -> DataFrame:
        """A pandas table with a row for every training unit that is named: `COLUMNS`."""
        rows = [
            (e.id, e.predicted, e.probability, side, rank, p.name, p.label, p.size, p.change, p.probability)
            for e in self.items
            for side in ("towards", "away")
            for rank, p in enumerate(getattr(e, side), 1)
        ]
        return data_frame(rows, COLUMNS)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a page (.html), a picture (.png) or the numbers (.json); the file appears whole or not at all."""
        path = Path(path)
        check_file(path, overwrite, SUFFIXES)
        write_file(path, self._content(path.suffix.lower()))

    def _content(self, suffix: str) -> str | bytes:
        if suffix == ".json":
            return dump_json(self.to_dict())
        return (explain_page if suffix == ".html" else explain_sheet)(self.items, self.queries, self.train, self.level)

    def _without(self, e: Explanation) -> dict[str, Any]:
        """The prediction without the samples that were left out; nothing where there were none."""
        if self.what_if is None:
            return {}
        p = self.what_if.probabilities[e.query]
        return {
            "without": {
                "ids": list(self.left_out),
                "predicted": self.what_if.predicted[e.query],
                "probability": float(p.max()),
                "probabilities": dict(zip(self.what_if.classes, p.tolist(), strict=True)),
            }
        }


def explain(
    analysis: Analysis,
    queries: Queries,
    *,
    most: int = 6,
    without: Iterable[str | int] = (),
    of: str | None = None,
    quick: bool | None = None,
) -> Explanations:
    """Explain the predictions of some images.

    Args:
        analysis: a model's training problem, opened again.
        queries: the images.
        most: training units of each kind, at most.
        without: training samples, ids or numbers, without which the images are predicted once more.
        of: the class to explain; None: the predicted one of every image.
        quick: whether an estimate will do, by at most three passes over the training images; None: where more would
            take longer than `SOON`.
    """
    quick, waits = _announced(analysis, len(queries), quick)
    first = _at_once(analysis, queries, of) if waits else None
    contrast, left_out = analysis.contrast(queries, of=of, quick=quick), list(without)
    note = contrast.note if first is None else f"{contrast.note}; {_agreement(first, contrast)}"
    return Explanations(
        tuple(explanations(contrast, analysis.labels, most=most)),
        queries.images.samples,
        analysis.images.samples,
        contrast.level,
        note,
        tuple(str(i) for i in left_out),
        analysis.what_if(queries, without=left_out) if left_out else None,
    )


def _announced(analysis: Analysis, images: int, quick: bool | None) -> tuple[bool, bool]:
    """Whether to answer quickly, and whether the exact answer takes so long that the quick one is shown before it; time
    is announced before it is spent.
    """
    say = analysis.problem.context.progress.say
    soon, long = (analysis.seconds(images, quick=q) for q in (True, False))
    if quick is None and long > SOON:
        exact = naming.either("--exact", "quick=False")
        say(f"a quick answer, in about {duration(soon)}; {exact} takes about {duration(long)}")
        return True, False
    if quick is False and long > SOON:
        less = naming.either("--quick", "quick=True")
        say(f"about {duration(long)}; a quick answer takes {duration(soon)}: {less}")
        return False, True
    return bool(quick), False


def _at_once(analysis: Analysis, queries: Queries, of: str | None) -> Contrast:
    """The quick answer, in a few lines to read while the exact one is computed."""
    contrast = analysis.contrast(queries, of=of, quick=True)
    found = explanations(contrast, analysis.labels, most=_PRINTED)
    lines = [f"{contrast.level}, {contrast.note}:", *(f"  {shortened(e.id, 36)}: {_strongest(e)}" for e in found)]
    analysis.problem.context.progress.say("\n".join(lines))
    return contrast


def _agreement(quick: Contrast, exact: Contrast) -> str:
    """How well a quick answer told the order and the size of the effects."""
    r = correlations(quick.effects, exact.effects)
    return f"the quick answer's correlation with it is {float(r.median()):.2f}"


def _strongest(e: Explanation) -> str:
    best = f", most by {shortened(e.towards[0].name, 28)}" if e.towards else ""
    return f"{shortened(e.predicted, 24)} {percent(e.probability)}{best}"
