"""Templates, filled with everything escaped."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from lqf.errors import MissingDependency
from lqf.reports import figures
from lqf.utils import text

HERE = "lqf.reports.html"


def render(template: str, **context: Any) -> str:
    """A template of this package as text; fails where jinja2 is missing or a name is not defined."""
    return load_template(template).render(**context)


def load_template(name: str, package: str = HERE) -> Any:
    """A template, ready to be filled: of ``package``, which may include those of this one."""
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as e:
        raise MissingDependency("jinja2", "HTML pages") from e

    def source(name: str) -> str | None:
        found = (files(place).joinpath(name) for place in (package, HERE))
        return next((file.read_text(encoding="utf-8") for file in found if file.is_file()), None)

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(source),
    )
    environment.filters |= {"percent": percent, "number": number, "sentence": sentence, "counted": text.counted}
    environment.filters |= {"score": figures.score, "breakable": breakable, "precise": precise}
    return environment.get_template(name)


def scoped_style() -> Any:
    """The style sheet for the inside of one element of another page (nested CSS)."""
    from markupsafe import Markup

    style = files(HERE).joinpath("style.css").read_text(encoding="utf-8")
    return Markup(re.sub(r"(:root|\bbody)(?= \{)", "&", style))


_UNIT = "\u202f%"
"""With a narrow space that does not break."""


def percent(share: float | None, digits: int = 1) -> str:
    """0.1734 -> "17.3 %"."""
    return text.percent(share, digits, _UNIT)


def precise(p: float) -> str:
    """A probability with as many digits as tell it from certainty: 99.2 %, 99.9983 %."""
    return text.precise(p, _UNIT)


def number(x: float | None) -> str:
    """Three digits; a power of ten as people write it."""
    mantissa, _, exponent = text.number(x).partition("e")
    return f"{mantissa}·10{str(int(exponent)).translate(RAISED)}" if exponent else mantissa


RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def sentence(words: str) -> str:
    """With a capital and a full stop."""
    return f"{text.capitalized(words)}{'' if words.endswith(('.', '!', '?')) else '.'}" if words else ""


def breakable(name: str) -> Any:
    """A name, escaped, that may be broken after the marks inside it instead of in the middle of a word."""
    from markupsafe import Markup, escape

    return Markup(re.sub("([_/.-])(?=[^_/.-])", r"\1<wbr>", str(escape(name))))
