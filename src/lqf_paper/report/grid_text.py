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
    axes = list(dict.fromkeys(k for s in settings for k in s))
    products = _products(list(settings), axes)
    return "; ".join(" × ".join(_axis(k, lists[k]) for k in axes) or "the defaults" for lists in products)


def value(of: Any) -> str:
    """A number as people write it: 1e-4, not 0.0001 or 1e-04."""
    if isinstance(of, float) and 0 < abs(of) < 1e-3:
        digits, power = f"{of:e}".split("e")
        return f"{float(digits):g}e{int(power)}"
    return f"{of:g}" if isinstance(of, float) else str(of)


def _products(settings: list[Settings], axes: Sequence[str]) -> list[dict[str, list[Any]]]:
    """Products of lists that together are the settings, as few as splitting by one axis after the other makes.

    Values of an axis that go with the same settings of the others stay together.
    """
    if not axes:
        return [{}]
    ways = []
    for k in _first(settings, axes):
        groups: dict[str, tuple[list[Any], list[Settings]]] = {}
        for v in _unique([s.get(k) for s in settings]):
            rest = [{n: s.get(n) for n in axes if n != k} for s in settings if s.get(k) == v]
            groups.setdefault(json.dumps(sorted(map(json.dumps, rest))), ([], rest))[0].append(v)
        others = [n for n in axes if n != k]
        ways.append([{k: values, **lists} for values, rest in groups.values() for lists in _products(rest, others)])
    return min(ways, key=len)


def _first(settings: list[Settings], axes: Sequence[str]) -> Sequence[str]:
    """Axes to split by: one without a choice at once, or any."""
    alone = [k for k in axes if len(_unique([s.get(k) for s in settings])) == 1]
    return alone[:1] or axes


def _axis(name: str, values: Sequence[Any]) -> str:
    shown = [AUGMENTS.get(v, str(v)) if name == "augment" else value(v) for v in values]
    return NAMES.get(name, name.replace("_", " ") + " ") + ", ".join(shown)


def _unique(values: Sequence[Any]) -> list[Any]:
    return list({json.dumps(v): v for v in values}.values())
