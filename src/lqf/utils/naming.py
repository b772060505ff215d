"""The words for a choice, where it is made: `--overwrite` on the command line, `overwrite=True` in Python.

Messages come from below both and are read by the users of both, so they name a choice by these functions. What is kept
for later, in a model or a report, is read by both and names it plainly, as Python does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_COMMAND_LINE: ContextVar[bool] = ContextVar("command_line", default=False)


@contextmanager
def command_line() -> Iterator[None]:
    """Messages of the ``with`` block are read by somebody who types commands."""
    token = _COMMAND_LINE.set(True)
    try:
        yield
    finally:
        _COMMAND_LINE.reset(token)


def on_command_line() -> bool:
    """Whether options are to be named, and not arguments."""
    return _COMMAND_LINE.get()


def name(argument: str) -> str:
    """`--time-limit`, or `time_limit`."""
    return f"--{argument.replace('_', '-')}" if on_command_line() else argument


def given(argument: str, value: object = True) -> str:
    """A choice as it is written: `--loo folds`, or `loo='folds'`; `--overwrite`, or `overwrite=True`."""
    if not on_command_line():
        return f"{argument}={value!r}"
    return name(argument) if value is True else f"{name(argument)} {value}"


def either(option: str, argument: str) -> str:
    """What is called by another name in each: `--train DIR`, or `train=`."""
    return option if on_command_line() else argument
