"""The demo's page: one HTML file that needs nothing else, with the suspicious cells' pictures inside."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from PIL import Image

from lqf.demo import words
from lqf.errors import MissingDependency

_PICTURE_SIDE = 240


class Page:
    """The template, ready to be filled. Making it fails where jinja2 is missing."""

    def __init__(self) -> None:
        try:
            from jinja2 import Environment, StrictUndefined
        except ImportError as e:
            raise MissingDependency("jinja2", "the page that `lqf demo` writes") from e
        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        environment.filters["percent"] = words.percent
        environment.globals["words"] = words
        source = files("lqf.demo").joinpath("page.html.jinja").read_text(encoding="utf-8")
        self._template = environment.from_string(source)

    def render(self, result: Mapping[str, Any], pictures: Mapping[str, Path]) -> str:
        """The page of a result.

        Args:
            result: As `run_demo` returns it.
            pictures: Image file of every suspicious cell, by id.
        """
        shown = {c["id"]: data_uri(pictures[c["id"]]) for c in result["suspicious"]}
        return self._template.render(result=result, pictures=shown, chart=chart(result), slowest=_slowest(result))


def data_uri(path: Path) -> str:
    """An image as a small JPEG inside a URI."""
    with Image.open(path) as image:
        small = image.convert("L").resize((_PICTURE_SIDE, _PICTURE_SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=80, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def chart(result: Mapping[str, Any]) -> dict[str, Any]:
    """Where the error bars lie, in percent of the axis; the axis ends on whole steps outside all of them."""
    bars = [
        {"model": words.NAMES[key], "what": what, "error": m[f"{what}_error"], "se": m[f"{what}_standard_error"]}
        for key, m in result["models"].items()
        for what in ("test", "loo")
    ]
    low, high = min(b["error"] - b["se"] for b in bars), max(b["error"] + b["se"] for b in bars)
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2) if (high - low) / s <= 6)
    first, last = math.floor(low / step), math.ceil(high / step)
    last = max(last, first + 1)

    def place(x: float) -> float:
        return round(100 * (x / step - first) / (last - first), 2)

    for b in bars:
        b |= {"at": place(b["error"]), "from": place(b["error"] - b["se"]), "to": place(b["error"] + b["se"])}
    ticks = [{"at": place(k * step), "label": words.percent(k * step, 0)} for k in range(first, last + 1)]
    return {"bars": bars, "ticks": ticks}


def _slowest(result: Mapping[str, Any]) -> float:
    return max(stage["seconds"] for stage in result["stages"]) or 1.0
