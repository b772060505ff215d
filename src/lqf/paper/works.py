"""The kinds of work a cell can name: functions of a task and JSON parameters that return JSON values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Function = Callable[..., dict[str, Any]]
"""(task, **params) -> JSON values, the same for the same arguments."""


@dataclass(frozen=True)
class Work:
    """A registered function. ``version`` goes up when its results change; cells of older ones are computed again."""

    function: Function
    version: int


WORKS: dict[str, Work] = {}


def work(name: str, version: int = 1) -> Callable[[Function], Function]:
    """Register a function as the work ``name``.

    Example:
        >>> @work("count")
        ... def count(task, *, times):
        ...     return {"images": times * len(task.train)}
    """

    def register(function: Function) -> Function:
        WORKS[name] = Work(function, version)
        return function

    return register
