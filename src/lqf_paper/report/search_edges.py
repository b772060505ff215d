"""Whether the best of a search lies at an end of what was tried, so that a better one may lie beyond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lqf_paper.runner.experiment import Done


def edge_of(winner: Done, tried: Sequence[Done], axis: str, least: int = 2) -> str:
    """Which end of the values of ``axis`` that were tried with otherwise the same settings: "lowest", "highest" or "".

    A value inside that was as good is not an end, nor is one next to a run that diverged: beyond that nothing is to be
    found. So few values as make no range, fewer than ``least``, have no ends.
    """
    alike = [d for d in tried if axis in _settings(d) and _apart(d, axis) == _apart(winner, axis)]
    values = sorted({v for d in alike if isinstance(v := _settings(d)[axis], int | float)})
    if len(values) < least or axis not in _settings(winner):
        return ""
    low = winner.result.get("test_error")
    as_good = {_settings(d)[axis] for d in alike if d.result.get("test_error") == low}
    if as_good & set(values[1:-1]):
        return ""
    return "lowest" if _settings(winner)[axis] == values[0] else "highest"


def _settings(done: Done) -> dict[str, Any]:
    return done.params.get("settings") or {}


def _apart(done: Done, axis: str) -> dict[str, Any]:
    """All else; epochs follow from the number of images."""
    return {k: v for k, v in _settings(done).items() if k not in (axis, "epochs")}
