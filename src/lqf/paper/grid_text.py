"""A list of settings in few words: as products of lists, where it is made of such."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Settings = dict[str, Any]
NAMES = {"learning_rate": "η ", "weight_decay": "λ ", "batch_size": "batch ", "augment": "", "damping": "ρ "}
AUGMENTS = {"none": "no crops", "crop": "crops", "resized": "resized crops"}


def spelled(settings: Sequence[Settings]) -> str:
    """A phrase such as "η 0.01, 0.001 × λ 1e-4 × crops; η 0.02 × λ 1e-4 × resized crops".

    Example:
        >>> spelled([{"learning_rate": r, "augment": "crop"} for r in (0.01, 0.001)])
        'η 0.01, 0.001 × crops'
    """
    if not settings:
        return ""
    return "; ".join(_products(list(settings)))


def value(of: Any) -> str:
    """A number as people write it: 1e-4, not 0.0001 or 1e-04."""
    if isinstance(of, float) and 0 < abs(of) < 1e-3:
        digits, power = f"{of:e}".split("e")
        return f"{float(digits):g}e{int(power)}"
    return f"{of:g}" if isinstance(of, float) else str(of)


def _products(settings: list[Settings]) -> list[str]:
    """The fewest products that splitting by one axis after the other makes."""
    axes = list(dict.fromkeys(k for s in settings for k in s))
    lists = {k: _unique([s.get(k) for s in settings]) for k in axes}
    size = 1
    for values in lists.values():
        size *= len(values)
    if size == len(settings):
        return [" × ".join(_axis(k, values) for k, values in lists.items()) or "the defaults"]
    ways = []
    for k in (k for k in axes if len(lists[k]) > 1):
        groups = [[s for s in settings if s.get(k) == v] for v in lists[k]]
        ways.append([phrase for group in groups for phrase in _products(group)])
    return min(ways, key=len)


def _axis(name: str, values: Sequence[Any]) -> str:
    shown = [AUGMENTS.get(v, str(v)) if name == "augment" else value(v) for v in values]
    return NAMES.get(name, name.replace("_", " ") + " ") + ", ".join(shown)


def _unique(values: Sequence[Any]) -> list[Any]:
    return list({json.dumps(v): v for v in values}.values())
