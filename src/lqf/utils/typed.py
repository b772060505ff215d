"""Whether values that were read from a file have the types that a dataclass says."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def check_types(of: type, values: Mapping[str, Any]) -> None:
    """TypeError, naming the field, where a value that is there has another type; tuples are lists in JSON."""
    hints = get_type_hints(of)
    for f in fields(of):
        if f.name in values and not _is(values[f.name], hints[f.name]):
            raise TypeError(f"`{f.name}` is {type(values[f.name]).__name__}")


def _is(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or origin is Literal:
        return True
    if origin in (Union, types.UnionType):
        return any(_is(value, one) for one in arguments)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (str, bool, type(None)):
        return isinstance(value, hint)
    if origin in (tuple, list):
        if not isinstance(value, list | tuple):
            return False
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return all(_is(one, arguments[0]) for one in value)
        return origin is list or (len(value) == len(arguments) and all(map(_is, value, arguments)))
    if origin is dict:
        return isinstance(value, dict) and all(_is(one, arguments[1]) for one in value.values())
    return isinstance(value, hint | dict) if isinstance(hint, type) else True  # a dataclass is a dict in JSON
