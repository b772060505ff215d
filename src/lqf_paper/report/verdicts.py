"""What the paper says, judged by intervals: confirmed, not confirmed, or contradicted.

A statement says in which range the difference of two errors lies. An interval inside it confirms it, one outside
contradicts it, and one across an end does neither, whatever the difference itself is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lqf_paper.report.paired import Gap, gap, mean_gap, unpaired
from lqf_paper.report.winners import Winner, Winners
from lqf_paper.runner.experiment import Table

Verdict = Literal["confirmed", "not confirmed", "contradicted"]
Range = tuple[float, float]
LESS: Range = (-math.inf, 0.0)
MORE: Range = (0.0, math.inf)


MARKS: dict[Verdict, str] = {"confirmed": "✓", "not confirmed": "", "contradicted": "✗"}


def near(margin: float) -> Range:
    """Differences of at most so much either way."""
    return -margin, margin


def verdict(low: float, high: float, claimed: Range) -> Verdict:
    """What an interval says of a claim that the value lies inside a range.

    Example:
        >>> [verdict(*i, MORE) for i in ((0.01, 0.05), (-0.01, 0.05), (-0.05, -0.01))]
        ['confirmed', 'not confirmed', 'contradicted']
    """
    if claimed[0] < low and high < claimed[1]:
        return "confirmed"
    return "contradicted" if low > claimed[1] or high < claimed[0] else "not confirmed"


@dataclass(frozen=True)
class Statement:
    """That the error of ``method`` minus that of ``to`` lies in ``claimed``.

    Attributes:
        text: in words, for the table.
        method, to: names of methods.
        claimed: the range.
    """

    text: str
    method: str
    to: str
    claimed: Range


@dataclass(frozen=True)
class Judged:
    """A statement with what the data say.

    Attributes:
        statement: what is claimed.
        gaps: data set -> difference.
        mean: over these data sets; None: there is none.
    """

    statement: Statement
    gaps: Mapping[str, Gap]
    mean: Gap | None

    @property
    def overall(self) -> Verdict | None:
        """By the mean over the data sets."""
        return None if self.mean is None else verdict(self.mean.low, self.mean.high, self.statement.claimed)

    def cell(self, name: str) -> str:
        """Of one data set."""
        return marked(self.gaps.get(name), self.statement.claimed)

    def values(self) -> dict[str, Any]:
        """JSON values."""
        claimed = self.statement.claimed
        return {
            "statement": self.statement.text,
            "data": {
                name: {**g.to_dict(), "verdict": verdict(g.low, g.high, claimed)} for name, g in self.gaps.items()
            },
            "mean": None if self.mean is None else {**self.mean.to_dict(), "verdict": self.overall},
        }


def judge(statements: Sequence[Statement], found: Winners) -> list[Judged]:
    """Every statement on every data set."""
    return [judge_one(s, {name: (row.get(s.method), row.get(s.to)) for name, row in found.items()}) for s in statements]


def judge_one(statement: Statement, pairs: Mapping[str, tuple[Winner | None, Winner | None]]) -> Judged:
    """A statement on the winners of two methods per data set."""
    gaps = {name: g for name, (a, b) in pairs.items() if (g := gap(a, b)) is not None}
    return Judged(statement, gaps, mean_gap(list(gaps.values())))


def judge_errors(text: str, claimed: Range, errors: Mapping[str, tuple[float | None, float | None, int]]) -> Judged:
    """A statement on errors alone: data set -> the first one, the second one, and the number of test images."""
    known = {name: unpaired(p, q, n) for name, (p, q, n) in errors.items() if p is not None and q is not None}
    return Judged(Statement(text, "", "", claimed), known, mean_gap(list(known.values())))


HOW = (
    "Differences of test errors in points, the first method's minus the second one's, with 95 % intervals: image by "
    "image over the runs whose predictions are kept (one of each: Tango's score; several: a bootstrap over test images "
    "and runs), † where there are none, as if of different images, which is wider. ✓ confirmed: the whole interval "
    "lies where the statement has it; ✗ contradicted: all of it lies elsewhere; neither: not confirmed. “Mean” is over "
    "the data sets in the table."
)
NOT_TOLD = "Winners by test error are compared on the images that chose them; intervals do not know of that."


def verdict_table(judged: Sequence[Judged], names: Sequence[str]) -> Table:
    """A row per statement, a column per data set, the mean last."""
    shown = [j for j in judged if j.gaps]
    rows = [(j.statement.text, *map(j.cell, names), *([_overall(j)] if len(names) > 1 else [])) for j in shown]
    return Table(("statement", *names, *(["mean"] if len(names) > 1 else [])), tuple(rows))


def marked(g: Gap | None, claimed: Range) -> str:
    """A difference with its interval and the mark of its verdict."""
    if g is None:
        return "–"
    mark = MARKS[verdict(g.low, g.high, claimed)]
    return f"{g.points()} {mark}".strip()


def _overall(judged: Judged) -> str:
    return "–" if judged.mean is None else f"{judged.mean.points()} {judged.overall}"
