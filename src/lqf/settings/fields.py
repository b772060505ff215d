"""A setting as the field of a dataclass: what is known about it, checked, as JSON, and as a line of a docstring."""

from __future__ import annotations

from dataclasses import Field, field, fields
from textwrap import fill
from typing import Any

from lqf.errors import LQFError
from lqf.settings.rules import Rule
from lqf.utils import naming


def setting(
    default: Any,
    help: str,
    *,
    group: str | None = None,
    choices: tuple[str, ...] = (),
    rule: Rule | None = None,
    metavar: str = "N",
    later: bool = False,
) -> Any:
    """A field with all that is known about it.

    Args:
        default: of the argument and of the option.
        help: what it does, in words that suit both.
        group: of options in `lqf fit --help`; None: for Python alone.
        choices: allowed values.
        rule: other checks.
        metavar: of the option's value.
        later: whether results that are kept under the settings they were made with were made before it was there.
    """
    known = {"help": help, "group": group, "choices": choices, "rule": rule, "metavar": metavar, "later": later}
    return field(default=default, metadata=known)


def check(f: Field[Any], value: Any) -> None:
    """Refuse a value that a setting may not have."""
    choices, rule = f.metadata["choices"], f.metadata["rule"]
    if choices and value not in choices:
        raise LQFError(f"{naming.name(f.name)} is {value!r}; choose one of {', '.join(choices)}")
    if rule is not None and not rule.allows(value):
        raise LQFError(f"{naming.name(f.name)} is {value!r}; {rule.sentence}")


def plain(value: Any) -> Any:
    """A value as JSON; what JSON lacks as text."""
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def described(*of: type, indent: str = " " * 8) -> str:
    """One paragraph per setting, as the arguments of a docstring."""
    known = [(f.name, f.metadata["help"].rstrip("….")) for cls in of for f in fields(cls)]
    return "\n".join(
        fill(f"{name}: {text}.", 120, initial_indent=indent, subsequent_indent=indent + " " * 4) for name, text in known
    )
