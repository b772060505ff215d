"""The kinds of work a cell can name: functions of a task and JSON parameters that return JSON values.

A cell names only the parameters that it changes. What else its result depends on, defaults and constants of the
code, is given by `Work.complete`: two ways to write the same settings are one cell, and a default that changes makes
other cells.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from lqf.settings import EFFORT

Function = Callable[..., dict[str, Any]]
"""(task, **params) -> JSON values, the same for the same arguments."""


GUARDS = {"max_passes": 40}
"""What a guard is described by where a cell does not name it: a solution that arrived does not depend on it, and cells
were kept under this value."""


@dataclass(frozen=True)
class Defaults:
    """What settings are where they are not given.

    Attributes:
        of: a dataclass (`NLFT`, `Linear`, `lqf.settings.Settings`) whose fields they are; None: of none.
        fixed: what stands in place of its defaults, and further facts.
        without: fields that come from elsewhere: a cell's own parameters, or the workspace.
        version: goes up when results change though no setting did.
    """

    of: type | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ("seed",)
    version: int = 1

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with all others; a whole number where the default is a fraction becomes one."""
        own = {f.name: GUARDS.get(f.name, f.default) for f in fields(self.of) if self._counts(f)} if self.of else {}
        whole = {**own, **self.fixed, **settings}
        return {k: float(v) if type(v) is int and type(own.get(k)) is float else v for k, v in whole.items()}

    def earlier(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """The same settings as they were completed before the defaults in `EARLIER` of the dataclass changed.

        None where none of them has, or where a cell names another value for one of them. A value of None: the setting
        was not there.
        """
        changed: Mapping[str, Any] = getattr(self.of, "EARLIER", {})
        named = {k: v for k, v in settings.items() if k in changed}
        if not changed or changed.keys() & self.fixed.keys() or named.items() - changed.items():
            return None
        before = {**self.complete(settings), **changed}
        return {k: v for k, v in before.items() if k not in changed or v is not None}

    def _counts(self, f: Field[Any]) -> bool:
        """Whether a result depends on a field: how far a climb goes says nothing about one model, and a setting that
        came later counts where it is given.
        """
        later = f.metadata.get("later", False)
        return f.name not in self.without and f.metadata.get("group") != EFFORT and not later


def defaults(
    of: type | None = None, *, without: tuple[str, ...] = ("seed",), version: int = 1, **fixed: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function with the defaults of its settings; `defaults_of` reads them.

    Example:
        >>> @defaults(version=2, momentum=0.9)
        ... def train(task, **settings): ...
        >>> defaults_of(train).complete({"rate": 0.1})
        {'momentum': 0.9, 'rate': 0.1}
    """

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.defaults = Defaults(of, fixed, without, version)  # type: ignore[attr-defined]
        return function

    return mark


def defaults_of(function: Callable[..., Any]) -> Defaults:
    """The defaults a function was marked with; none where it was not."""
    return getattr(function, "defaults", Defaults())


@dataclass(frozen=True)
class Work:
    """A registered function.

    Attributes:
        function: what is done.
        version: goes up when its results change; cells of older ones are computed again.
        constants: of the code, that its results depend on.
        settings_of: whose defaults complete the parameter ``settings``; by the parameters, for works that call others.
    """

    function: Function
    version: int
    constants: Mapping[str, Any] = field(default_factory=dict)
    settings_of: Callable[[Mapping[str, Any]], Callable[..., Any]] | None = None

    def complete(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """All that the result depends on apart from data and workspace, JSON values."""
        whole, known = self._named(params)
        if whole.get("settings") is not None:
            whole["settings"] = known.complete(whole["settings"])
        return self._described(whole, known)

    def earlier(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """As `complete` was before defaults changed; None: they have not."""
        whole, known = self._named(params)
        settings = None if whole.get("settings") is None else known.earlier(whole["settings"])
        return None if settings is None else self._described({**whole, "settings": settings}, known)

    def _named(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], Defaults]:
        parameters = inspect.signature(self.function).parameters.values()
        whole = {p.name: p.default for p in parameters if p.default is not p.empty} | dict(params)
        return whole, defaults_of(self.settings_of(whole) if self.settings_of else self.function)

    def _described(self, whole: dict[str, Any], known: Defaults) -> dict[str, Any]:
        versions = {"version": self.version, "settings_version": known.version}
        return {**versions, "params": whole, "constants": dict(self.constants)}


WORKS: dict[str, Work] = {}


def work(
    name: str,
    version: int = 1,
    *,
    settings_of: Callable[[Mapping[str, Any]], Callable[..., Any]] | None = None,
    **constants: Any,
) -> Callable[[Function], Function]:
    """Register a function as the work ``name``.

    Example:
        >>> @work("count")
        ... def count(task, *, times):
        ...     return {"images": times * len(task.train)}
    """

    def register(function: Function) -> Function:
        WORKS[name] = Work(function, version, constants, settings_of)
        return function

    return register
