"""A deadline: nothing is given up for it before there is something to fall back on."""

import math
import time

import pytest

from lqf.errors import LQFError
from lqf.runtime import deadline
from lqf.runtime.deadline import Deadline, OutOfTime, process_began


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])
    return now


def test_without_a_limit_there_is_always_time() -> None:
    never = Deadline.after(None)
    never.arm()
    never.check()
    assert never.left() == math.inf
    assert not never


def test_seconds_count_from_now_or_from_the_beginning(clock: list[float]) -> None:
    assert Deadline.after(30.0)
    assert Deadline.after(30.0).left() == 30
    begun = Deadline.after(30.0, began=80.0)
    assert begun.left() == 10
    clock[0] = 111.0
    assert begun.left() == -1


def test_the_time_is_up_only_where_it_was_armed(clock: list[float]) -> None:
    limit = Deadline.after(5.0)
    clock[0] = 106.0
    limit.check()  # there is no model yet
    limit.arm()
    with pytest.raises(OutOfTime):
        limit.check()
    early = Deadline.after(5.0)
    early.arm()
    early.check()


def test_what_comes_last_has_its_time_reserved(clock: list[float]) -> None:
    limit = Deadline.after(10.0)
    limit.reserve(3.0)
    limit.reserve(1.0)
    limit.arm()
    assert limit.left() == 7
    limit.check()
    clock[0] = 108.0
    with pytest.raises(OutOfTime):
        limit.check()


def test_an_interruption_by_time_is_no_user_error() -> None:
    """It would end the program where a model is kept."""
    assert not issubclass(OutOfTime, LQFError)


def test_the_process_began_before_now_and_not_long_before_the_tests() -> None:
    now = time.monotonic()
    assert now - 3600 <= process_began() < now


def test_where_nothing_says_when_it_began_it_is_now(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    def missing(*_: object, **__: object) -> object:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", missing)
    assert process_began() == 100.0
