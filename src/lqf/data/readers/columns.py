"""The columns of a table of images, which manifests and data frames share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lqf.errors import LQFError

COLUMNS = ("path", "label", "weight", "group")
MISSPELT = {
    "weights": "weight",
    "sample_weight": "weight",
    "groups": "group",
}  # would be ignored, and change the result


def header(where: str, cells: Sequence[object], needed: Sequence[str] = COLUMNS[:2]) -> list[str]:
    """Names of columns in small letters; LQFError where one is missing, misspelt or there twice."""
    names = [str(cell).strip().lower() for cell in cells]
    missing = [name for name in needed if name not in names]
    if missing:
        expected = "path and optionally label" if "label" not in needed else "path,label and optionally"
        raise LQFError(
            f"{where} has no column {' and no column '.join(missing)}; its header is "
            f"{','.join(map(str, cells))!r}, expected {expected} weight and group"
        )
    for name in names:
        if name in MISSPELT:
            raise LQFError(f"{where} has a column {name}; call it {MISSPELT[name]}, or it would not be used")
        if name in COLUMNS and names.count(name) > 1:
            raise LQFError(f"{where} has the column {name} twice")
    return names


def blank(value: object) -> bool:
    """Whether a cell says nothing: empty, None, or one of the values that stand for a missing one."""
    if isinstance(value, str):
        return not value.strip()
    missing = type(value).__name__ in ("NAType", "NaTType")  # pandas.NA is equal to nothing and neither true nor false
    return value is None or missing or (isinstance(value, float) and math.isnan(value))


def weight_of(value: object) -> float | None:
    """A weight, 1 where the cell is blank; None where it says no finite number from 0 up."""
    if blank(value):
        return 1.0
    try:
        weight = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return weight if math.isfinite(weight) and weight >= 0 else None
