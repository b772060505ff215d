"""Values as JSON knows them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any


def json_values(value: Any) -> Any:
    """Dicts, lists, text, numbers and null; NaN and infinity, which JSON lacks, become null."""
    if isinstance(value, Mapping):
        return {str(k): json_values(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(v) for v in value]
    if isinstance(value, PathLike):
        return fspath(value)
    if hasattr(value, "tolist"):  # numpy's and torch's
        return json_values(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def dump_json(value: Any, *, indent: int | None = 1, **options: Any) -> str:
    """JSON text of any of these values; further options as of `json.dumps`."""
    return json.dumps(json_values(value), indent=indent, allow_nan=False, **options)
