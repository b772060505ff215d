"""Two models on the same labelled images: how far their errors differ, and which images changed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lqf.data import Samples
from lqf.errors import LQFError
from lqf.evaluation.figures import Evaluation
from lqf.evaluation.intervals import LEVEL, units_of
from lqf.evaluation.measure import log_losses
from lqf.evaluation.paired_difference import Difference, difference
from lqf.reports import figures
from lqf.reports.classifier import Classifier
from lqf.reports.evaluation import Answered, Tested, tested
from lqf.reports.flips import ABOUT, BROKEN, OTHER, REPAIRED
from lqf.reports.html.comparison import comparison_page
from lqf.reports.predictions import paths
from lqf.utils.frames import data_frame
from lqf.utils.progress import SILENT, Progress
from lqf.utils.text import columns, counted, listed, percent, shortened, shortened_path

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_SHOWN = 10


@dataclass(frozen=True)
class Changed:
    """An image on which two models disagree.

    Attributes:
        path: of its file, or its id.
        label: its class.
        first, second: the models' predictions.
        first_probability, second_probability: of these.
        kind: `REPAIRED`, `BROKEN` or `OTHER`.
    """

    path: str
    label: str
    first: str
    second: str
    first_probability: float
    second_probability: float
    kind: str

    def to_dict(self) -> dict[str, Any]:
        """Columns of a table."""
        return dict(vars(self))


COLUMNS = tuple(f.name for f in fields(Changed))
"""Of a table of changed images."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """What tells two models apart on labelled images; differences are the second's figure minus the first's.

    Attributes:
        n: images that both models have seen, and that count.
        first, second: each model's figures on them.
        difference: of their errors and losses, image by image.
        changed: images with another prediction, broken ones first, then by how sure the second model is.
        skipped: (id, reason) of images that could not be read.
        samples: all images, for pictures.
        rows: number of every changed image among them.
    """

    n: int
    first: Evaluation
    second: Evaluation
    difference: Difference
    changed: tuple[Changed, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    samples: Samples | None = None
    rows: tuple[int, ...] = ()

    @cached_property
    def flips(self) -> dict[str, int]:
        """Number of changed images by kind; `BROKEN` are the negative flips."""
        return {kind: sum(c.kind == kind for c in self.changed) for kind in (BROKEN, REPAIRED, OTHER)}

    @property
    def verdict(self) -> str:
        """Whether the data tell their errors apart."""
        error = self.difference.error
        if error.low is not None and error.high is not None and (error.low > 0 or error.high < 0):
            return "the second is worse" if error.low > 0 else "the second is better"
        return "no difference of their errors is shown"

    def page(self, names: tuple[str, str] = ("first", "second")) -> str:
        """An HTML page that needs nothing else, with pictures of the changed images; ``names`` of the models."""
        return comparison_page(self, names)

    def to_frame(self) -> DataFrame:
        """A pandas table of the changed images: `COLUMNS`."""
        return data_frame([c.to_dict() for c in self.changed], COLUMNS)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        d = self.difference
        return {
            "n": self.n,
            "first": _figures(self.first),
            "second": _figures(self.second),
            "difference": {"error": d.error.value, "log_loss": d.log_loss.value},
            "intervals": {"error": d.error.interval, "log_loss": d.log_loss.interval},
            "interval_level": LEVEL,
            "p_value": d.p_value,
            "verdict": self.verdict,
            "flips": self.flips,
            "changed": [c.to_dict() for c in self.changed],
            "skipped": [list(s) for s in self.skipped],
        }

    def __repr__(self) -> str:
        return said(self.to_dict())


def compare(first: Classifier, second: Classifier, X: Any, y: Any = None, *, progress: Progress = SILENT) -> Comparison:
    """Compare two fitted models on labelled images that neither was fitted on.

    Args:
        first: fitted.
        second: fitted on the same classes, by whatever network.
        X: a folder ``CLASS/*.jpg``, a manifest, or whatever `LQFClassifier.score` takes.
        y: labels, where X has none.
        progress: where to report.
    """
    _check_classes(first.fitted_.classes, second.fitted_.classes)
    opened = tested(first, X, y, progress=progress)
    a, b, mine = _together(opened, tested(second, X, y, progress=progress))
    samples = opened.images.samples
    rows = _changed_rows(a, b)
    files = paths(samples)
    return Comparison(
        len(a.labels),
        a.evaluation,
        b.evaluation,
        difference(
            (~a.right, ~b.right),
            (log_losses(a.probabilities, a.labels), log_losses(b.probabilities, b.labels)),
            a.weights,
            units_of(a.groups, len(a.labels)),
        ),
        tuple(_changed(a, b, i, files[mine[i]]) for i in rows),
        opened.images.skipped,
        samples,
        tuple(mine[i] for i in rows),
    )


def _check_classes(first: tuple[str, ...], second: tuple[str, ...]) -> None:
    for mine, theirs, which in ((first, second, "first"), (second, first, "second")):
        alone = [name for name in mine if name not in set(theirs)]
        if alone:
            names = listed(alone)
            raise LQFError(f"only the {which} model knows {names}; models are compared on the same classes")


def _together(a: Tested, b: Tested) -> tuple[Answered, Answered, list[int]]:
    """Answers on the images that both could open and that count, with the first's order of classes; their numbers."""
    place = {name: i for i, name in enumerate(b.images.samples.ids)}
    both = [(i, place[name]) for i, name in enumerate(a.images.samples.ids) if name in place and a.weights[i] > 0]
    if not both:
        raise LQFError("there is no labelled image that counts; comparing models needs at least one")
    mine, theirs = (np.array(rows) for rows in zip(*both, strict=True))
    of_first = np.array([a.classes.index(name) for name in b.classes])  # the second's number of a class -> the first's
    shared: dict[str, Any] = {
        "classes": a.classes,
        "labels": a.labels[mine],
        "weights": a.weights[mine],
        "groups": None if a.groups is None else tuple(a.groups[i] for i in mine),
    }
    second = b.probabilities[theirs][:, of_first.argsort()]
    return (
        Answered(predicted=a.predicted[mine], probabilities=a.probabilities[mine], **shared),
        Answered(predicted=of_first[b.predicted[theirs]], probabilities=second, **shared),
        mine.tolist(),
    )


def _changed_rows(a: Answered, b: Answered) -> list[int]:
    """Images on which the two disagree, broken ones first, then by how sure the second is."""
    order = list(ABOUT)
    rows: list[int] = (a.predicted != b.predicted).nonzero()[0].tolist()
    return sorted(rows, key=lambda i: (order.index(_kind(a, b, i)), -float(b.confidence[i])))


def _kind(a: Answered, b: Answered, i: int) -> str:
    return REPAIRED if b.right[i] else BROKEN if a.right[i] else OTHER


def _changed(a: Answered, b: Answered, i: int, path: str) -> Changed:
    label, mine, theirs = (a.classes[k] for k in (a.labels[i], a.predicted[i], b.predicted[i]))
    return Changed(path, label, mine, theirs, float(a.confidence[i]), float(b.confidence[i]), _kind(a, b, i))


def _figures(of: Evaluation) -> dict[str, Any]:
    return {"error": of.error.value, "log_loss": of.log_loss.value, "intervals": {"error": of.error.interval}}


# --- for a person -----------------------------------------------------------------------------------------------------


def said(result: dict[str, Any], names: tuple[str, str] = ("first", "second"), most: int = MOST_SHOWN) -> str:
    """`Comparison.to_dict` in words: both errors, their difference, the flips, and some of the images.

    Args:
        result: what is said.
        names: of the models.
        most: images that are listed.
    """
    names = (shortened_path(names[0], 40), shortened_path(names[1], 40))
    width = max(len(name) for name in (*names, "difference"))
    lines = [f"{'':<{width}}  {'error':>7}  {'log loss':>8}"]
    for name, key in zip(names, ("first", "second"), strict=True):
        of = result[key]
        lines.append(f"{name:<{width}}  {percent(of['error']):>7}  {figures.score(of['log_loss']):>8}")
    d, ends = result["difference"], result["intervals"]
    lines.append(f"{'difference':<{width}}  {_points(d['error']):>7}  {d['log_loss']:>+8.3f}")
    p = "" if result["p_value"] is None else f"; McNemar p = {result['p_value']:.2g}"
    lines += [
        "",
        f"On {counted(result['n'], 'image')} {result['verdict']}.",
        f"Difference of error {_points(d['error'])} points (95%: {_interval(ends['error'])}{p}).",
        f"Difference of log loss {d['log_loss']:+.3f} (95%: {_interval(ends['log_loss'], '{:+.3f}', 1)}).",
        _flips(result["flips"]),
    ]
    return "\n".join([*lines, *_images(result["changed"], most)])


def _flips(flips: dict[str, int]) -> str:
    changed = counted(sum(flips.values()), "prediction")
    return f"{changed} changed: {flips[REPAIRED]} repaired, {flips[BROKEN]} broken, {flips[OTHER]} wrong in both."


def _images(changed: list[dict[str, Any]], most: int) -> list[str]:
    if not changed:
        return []
    shown = changed[:most]
    words = [shortened(f"{c['label']}: {c['first']} → {c['second']}", 44) for c in shown]
    width, kinds = max(map(len, words)), max(len(c["kind"]) for c in shown)
    lines = [
        f"  {c['kind']:<{kinds}}  {what:<{width}}  {shortened_path(c['path'], columns() - width - kinds - 6)}"
        for c, what in zip(shown, words, strict=True)
    ]
    return ["", *lines, *([f"  … and {len(changed) - most:,} more"] if len(changed) > most else [])]


def _interval(ends: tuple[float, float] | None, form: str = "{:+.1f}", times: float = 100) -> str:
    return "not known" if ends is None else " to ".join(form.format(times * x) for x in ends)


def _points(x: float) -> str:
    """A difference of shares in percentage points."""
    return f"{100 * x:+.1f}"
