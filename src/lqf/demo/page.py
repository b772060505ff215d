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
from lqf.reports.rungs import rung_rows

_PICTURE_SIDE = 240


class Page:
    """The template, ready to be filled. Making it fails where jinja2 is missing."""

    def __init__(self) -> None:
        self._template = load_template("page.html.jinja", "lqf.demo")

    def render(self, result: Mapping[str, Any], pictures: Mapping[str, Path]) -> str:
        """The page of a result.

        Args:
            result: as `run_demo` returns it.
            pictures: image file of every suspicious cell, by id.
        """
        shown = {c["id"]: small_picture(pictures[c["id"]]) for c in result["suspicious"]}
        slowest = max(stage["seconds"] for stage in result["stages"]) or 1.0
        rows = rung_rows(result["rungs"])
        return self._template.render(
            result=result, rows=rows, pictures=shown, chart=chart(result), slowest=slowest, words=words
        )


def small_picture(path: Path) -> str:
    """An image file as a small JPEG inside a URI."""
    with Image.open(path) as image:
        return data_uri(image.convert("L").resize((_PICTURE_SIDE, _PICTURE_SIDE), Image.Resampling.LANCZOS))


def chart(result: Mapping[str, Any]) -> dict[str, Any]:
    """Error out of sample and on the test cells of every model, where it is known, with its standard error."""
    return error_chart(
        {"model": r["name"], "what": css, "error": r[f"{what}error"], "se": r[f"{what}standard_error"]}
        for r in result["rungs"]
        for css, what in (("loo", ""), ("test", "test_"))
        if r[f"{what}error"] is not None
    )
