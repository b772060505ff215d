"""Explanations to look at: a page, or one picture."""

from __future__ import annotations

from collections.abc import Sequence

from lqf.data import Samples
from lqf.reports.explanation import Explanation, Push
from lqf.reports.html.environment import precise, render
from lqf.reports.html.gallery import Gallery
from lqf.reports.html.report import case_view
from lqf.reports.pictures import Tile, contact_sheet, png, thumbnail

_SIDE = 160


def explain_page(explained: Sequence[Explanation], queries: Samples, train: Samples, level: str) -> str:
    """An HTML page that needs nothing else."""
    query_pictures, train_pictures = Gallery(queries, side=320), Gallery(train)
    cases = [case_view(e, query_pictures, train_pictures) for e in explained]
    return render("explain.html.jinja", cases=cases, level=level)


def explain_sheet(explained: Sequence[Explanation], queries: Samples, train: Samples, level: str) -> bytes:
    """A PNG: per image a row towards and a row away, the image itself at the left of both."""
    rows = []
    for e in explained:
        own = thumbnail(queries, e.query, _SIDE), [f"{e.predicted} {precise(e.probability)}", e.id]
        rows.append(
            (
                f"Pushed towards {e.explained}, not {e.against} ({precise(e.share)} of the two)",
                [own, *(_tile(train, p) for p in e.towards)],
            )
        )
        rows.append((f"Pushed away from {e.explained}, towards {e.against}", [own, *(_tile(train, p) for p in e.away)]))
    return png(contact_sheet(rows, _SIDE))


def _tile(train: Samples, push: Push) -> Tile:
    text = [push.label, f"without it {precise(push.probability)}", push.name]
    return thumbnail(train, push.sample, _SIDE), text
