"""Two models side by side as a page: their figures, and pictures of the images whose predictions changed."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import lqf
from lqf.evaluation.figures import Evaluation
from lqf.evaluation.intervals import Estimate
from lqf.reports import figures
from lqf.reports.flips import ABOUT, BROKEN, REPAIRED
from lqf.reports.html.environment import percent, render
from lqf.reports.html.gallery import Gallery

if TYPE_CHECKING:
    from lqf.reports.comparison import Comparison

MOST = 48
"""Pictures of one kind."""


def comparison_page(found: Comparison, names: tuple[str, str]) -> str:
    """An HTML page that needs nothing else; ``names`` of the models."""
    return render(
        "comparison.html.jinja",
        names=names,
        n=found.n,
        verdict=found.verdict,
        figures=_figures(found),
        measured=_measured(found),
        p_value=found.difference.p_value,
        parts=_parts(found),
        skipped=len(found.skipped),
        version=lqf.__version__,
        date=datetime.date.today().isoformat(),
    )


def _figures(found: Comparison) -> list[dict[str, str]]:
    """At the top of the page."""
    error, flips = found.difference.error, found.flips
    of = f"of {found.n:,} images"
    points = {"name": "difference of error", "value": _signed(error.value, 100, "{:+.1f}"), "note": "percentage points"}
    if error.interval is not None:
        points["note"] += f", 95 %: {_ends(error, 100, '{:+.1f}')}"
    return [
        points,
        {"name": "repaired", "value": f"{flips[REPAIRED]:,}", "note": of},
        {"name": "broken", "value": f"{flips[BROKEN]:,}", "note": f"{of}: negative flips"},
        {"name": "changed", "value": f"{len(found.changed):,}", "note": "predictions in all"},
    ]


def _measured(found: Comparison) -> list[dict[str, Any]]:
    """Rows of the table: what is measured, of both models, and the difference."""
    error, loss = found.difference.error, found.difference.log_loss
    return [
        {
            "name": "Error",
            "of": [_of(e, "error") for e in (found.first, found.second)],
            "difference": {"value": _signed(error.value, 100, "{:+.1f}"), "interval": _ends(error, 100, "{:+.1f}")},
        },
        {
            "name": "Log loss",
            "of": [_of(e, "log_loss") for e in (found.first, found.second)],
            "difference": {
                "value": _signed(loss.value, 1, "{:+.3f}"),
                "interval": _ends(loss, 1, "{:+.3f}"),
            },
        },
    ]


def _of(evaluation: Evaluation, name: str) -> dict[str, str]:
    estimate: Estimate = getattr(evaluation, name)
    return {
        "value": figures.value(name, estimate.value, percent),
        "interval": figures.interval(name, estimate.interval),
    }


def _signed(x: float | None, times: float, form: str) -> str:
    """A difference; a dash where it is not defined."""
    return "–" if x is None else form.format(times * x)


def _ends(estimate: Estimate, times: float, form: str) -> str:
    """An interval; empty where there is none."""
    return "" if estimate.interval is None else " to ".join(form.format(times * x) for x in estimate.interval)


def _parts(found: Comparison) -> list[dict[str, Any]]:
    """Changed images by kind."""
    samples = found.samples
    gallery = None if samples is None else Gallery(samples)
    parts = []
    for kind, (title, text) in ABOUT.items():
        of = [(c, i) for c, i in zip(found.changed, found.rows, strict=True) if c.kind == kind]
        rows = [
            vars(c)
            | {"picture": "" if gallery is None else gallery(i), "id": c.path if samples is None else samples.ids[i]}
            for c, i in of[:MOST]
        ]
        parts.append({"title": title, "text": text, "n": len(of), "rows": rows, "left_out": max(0, len(of) - MOST)})
    return parts
