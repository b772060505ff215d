"""Templates, filled with everything escaped."""

from __future__ import annotations

import math
import re
from importlib.resources import files
from typing import Any

from lqf.errors import MissingDependency


def render(template: str, **context: Any) -> str:
    """A template of this package as text; fails where jinja2 is missing or a name is not defined."""
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as e:
        raise MissingDependency("jinja2", "HTML pages") from e
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(lambda name: files("lqf.reports.html").joinpath(name).read_text(encoding="utf-8")),
    )
    environment.filters |= {"percent": percent, "number": number, "sentence": sentence, "counted": counted}
    environment.filters |= {"breakable": breakable, "precise": precise}
    return environment.get_template(template).render(**context)


def percent(share: float | None, digits: int = 1) -> str:
    """0.1734 -> "17.3 %", with a narrow space that does not break."""
    return "–" if share is None else f"{100 * share:.{digits}f}\u202f%"


def precise(p: float) -> str:
    """A probability with as many digits as tell it from certainty: 99.2 %, 99.9983 %."""
    digits = 1 if p < 0.999 or p > 1 - 1e-7 else -math.floor(math.log10(1 - p)) - 1
    return percent(p, digits)


def number(x: float | None) -> str:
    """Three digits; a power of ten as people write it."""
    if x is None:
        return "–"
    text = f"{x:.3g}"
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(_RAISED)}"


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}" if text else ""


def counted(n: int, noun: str) -> str:
    """1 image, 2 images; 1 class, 2 classes; 1,200 passes."""
    plural = noun + ("es" if noun.endswith(("s", "ch")) else "s")
    return f"{n:,} {noun if n == 1 else plural}"


def breakable(name: str) -> Any:
    """A name, escaped, that may be broken after the marks inside it instead of in the middle of a word."""
    from markupsafe import Markup, escape

    return Markup(re.sub("([_/.-])(?=[^_/.-])", r"\1<wbr>", str(escape(name))))
