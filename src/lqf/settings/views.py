"""Fixed views of every image, by name."""

from __future__ import annotations

import re

from lqf.errors import LQFError
from lqf.utils import naming

NAMED_VIEWS: dict[str, int] = {"none": 1, "flip": 2, "five": 5, "ten": 10, "resized": 4}
"""Fixed views of every image under each name; crops8 and the like stand for as many as they say."""


def view_count(name: str) -> int:
    """Number of fixed views that a name stands for; LQFError where it stands for none."""
    number = re.fullmatch(r"crops([1-9][0-9]{0,2})", name) if isinstance(name, str) else None
    if number and int(number[1]) >= 3:
        return int(number[1])
    if name not in NAMED_VIEWS:
        raise LQFError(
            f"{naming.name('views')} is {name!r}; choose {', '.join(NAMED_VIEWS)}, or crops8 (any number from 3 on)"
        )
    return NAMED_VIEWS[name]


def begins_with(views: str, first: str) -> bool:
    """Whether the first of some views are those of another name: the centre always, its mirror image where no corners
    come between.
    """
    mirrored = view_count(views) > 1 and views not in ("five", "ten")
    return first in ("none", views) or (first == "flip" and mirrored)


def check_shown(views: str, shown: str) -> None:
    """LQFError where a prediction would average over views that are not the first of those trained on."""
    if shown in NAMED_VIEWS and not begins_with(views, shown):
        raise LQFError(
            f"{naming.name('predict_views')} {shown!r} averages over the centre of an image and its mirror "
            f"image, with which views {views!r} do not begin; choose views flip, resized or crops8, "
            "or predict_views none or same"
        )
