"""The demo's page: one HTML file that needs nothing else, with the suspicious cells' pictures inside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from lqf.demo import words
from lqf.reports.html.environment import load_template
from lqf.reports.html.plots import error_chart
from lqf.reports.pictures import data_uri

_PICTURE_SIDE = 240


class Page:
    """The template, ready to be filled. Making it fails where jinja2 is missing."""

    def __init__(self) -> None:
        self._template = load_template("page.html.jinja", "lqf.demo")

    def render(self, result: Mapping[str, Any], pictures: Mapping[str, Path]) -> str:
        """The page of a result.

        Args:
            result: As `run_demo` returns it.
            pictures: Image file of every suspicious cell, by id.
        """
        shown = {c["id"]: small_picture(pictures[c["id"]]) for c in result["suspicious"]}
        slowest = max(stage["seconds"] for stage in result["stages"]) or 1.0
        return self._template.render(result=result, pictures=shown, chart=chart(result), slowest=slowest, words=words)


def small_picture(path: Path) -> str:
    """An image file as a small JPEG inside a URI."""
    with Image.open(path) as image:
        return data_uri(image.convert("L").resize((_PICTURE_SIDE, _PICTURE_SIDE), Image.Resampling.LANCZOS))


def chart(result: Mapping[str, Any]) -> dict[str, Any]:
    """Test and leave-one-out error of every model, with their standard errors."""
    return error_chart(
        {"model": words.NAMES[key], "what": what, "error": m[f"{what}_error"], "se": m[f"{what}_standard_error"]}
        for key, m in result["models"].items()
        for what in ("test", "loo")
    )
