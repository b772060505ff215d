"""What values settings may have, with the sentence for those they may not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from lqf.errors import LQFError
from lqf.settings.views import NAMED_VIEWS, view_count


@dataclass(frozen=True)
class Rule:
    """What values a setting may have, and the sentence for those it may not."""

    allows: Callable[[Any], bool]
    sentence: str


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_whole(value) and value > 0


def _is_positive(value: Any) -> bool:
    return isinstance(value, Real) and value is not True and 0 < float(value) < float("inf")


def _are_views(value: Any) -> bool:
    try:
        return value == "auto" or view_count(value) > 0
    except LQFError:
        return False


def _are_class_weights(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_positive(weight) for weight in value.values())
    return value is None or (isinstance(value, str) and value == "balanced")


POSITIVE = Rule(_is_positive, "it must be a positive number")
POSITIVE_OR_NONE = Rule(lambda v: v is None or _is_positive(v), "it must be a positive number, or None")
DECAY = Rule(
    lambda v: (_is_positive(v) and 1e-20 <= v <= 1e20) or (isinstance(v, str) and v == "auto"),
    "give `auto` or a positive number from 1e-20 to 1e20",
)
COUNT = Rule(_is_count, "it must be a whole number, 1 or more")
COUNT_OR_NONE = Rule(lambda v: v is None or _is_count(v), "it must be a whole number, 1 or more, or None")
NOT_NEGATIVE = Rule(lambda v: _is_whole(v) and v >= 0, "it must be a whole number, 0 or more")
TIME = Rule(lambda v: v is None or _is_positive(v), "give a time like 90, 20s, 10m or 1h30m")
VERBOSE = Rule(lambda v: isinstance(v, Integral) and int(v) >= 0, "it must be 0 (silent) or 1")
SEED = Rule(lambda v: _is_whole(v) and 0 <= v < 2**32, "it must be a whole number from 0 to 4294967295")
SHARE = Rule(lambda v: _is_positive(v) and v <= 1, "it must be a number above 0 and at most 1")
ONE_OR_MORE = Rule(lambda v: _is_positive(v) and v >= 1, "it must be a number, 1 or more")
VIEWS = Rule(_are_views, f"choose auto, {', '.join(NAMED_VIEWS)}, or crops8 (any number from 3 on)")
CLASS_WEIGHTS = Rule(
    _are_class_weights, 'give `balanced`, or positive weights of classes by name, like {"crack": 3, "ok": 1}'
)
SWITCH = Rule(lambda v: isinstance(v, bool), "it must be True or False")
