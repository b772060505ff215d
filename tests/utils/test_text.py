"""Times as people write them."""

import pytest

from lqf.errors import LQFError
from lqf.settings import Settings
from lqf.utils.text import seconds_of

TIMES = {
    "90": 90.0,
    "20s": 20.0,
    "1.5s": 1.5,
    "10m": 600.0,
    "10min": 600.0,
    "2 min": 120.0,
    "5m30": 330.0,
    "5m30s": 330.0,
    "1h": 3600.0,
    "0.5h": 1800.0,
    "1h30m": 5400.0,
    "1h 30m 10s": 5410.0,
    "0": 0.0,
}


@pytest.mark.parametrize("text", TIMES)
def test_a_time_is_so_many_seconds(text: str) -> None:
    assert seconds_of(text) == TIMES[text]


@pytest.mark.parametrize("text", ["", " ", "soon", "h", "m", "s", "-5", "1e3", "10x", "30s10m", "10m5m", "1:30", "nan"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert seconds_of(text) is None


def test_a_setting_takes_a_time_in_words_or_in_seconds() -> None:
    assert Settings(time_limit="1h30m").time_limit == 5400.0
    assert Settings(time_limit=20).time_limit == 20
    for given in ("soon", "0", 0, -1):
        with pytest.raises(LQFError, match="give a time like 90, 20s, 10m or 1h30m"):
            Settings(time_limit=given)
