"""All choices of a fit: what they are called, what they may be, and what they mean, for Python and the command line."""

from __future__ import annotations

from lqf.settings.choices import EFFORT, IMAGES, NORMALIZED, PICTURES, PROBLEM, SOLVING, Settings, Setup
from lqf.settings.fields import described
from lqf.settings.rules import ONE_OR_MORE, SHARE, Rule
from lqf.settings.views import NAMED_VIEWS, begins_with, check_shown, view_count

__all__ = [
    "EFFORT",
    "IMAGES",
    "NAMED_VIEWS",
    "NORMALIZED",
    "ONE_OR_MORE",
    "PICTURES",
    "PROBLEM",
    "SHARE",
    "SOLVING",
    "Rule",
    "Settings",
    "Setup",
    "begins_with",
    "check_shown",
    "described",
    "view_count",
]
