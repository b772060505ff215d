"""Times as people write them, and names that do not fit."""

import pytest

from lqf.errors import LQFError
from lqf.settings import Settings
from lqf.utils.text import (
    against_the_fit,
    columns,
    listed,
    one_line,
    precise,
    printable,
    seconds_of,
    shortened,
    shortened_path,
)

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


LONG = "/home/me/photos/train/rose/image_0012.jpg"


@pytest.mark.parametrize("width", range(2, len(LONG) + 2))
def test_a_path_that_does_not_fit_keeps_the_name_of_its_file(width: int) -> None:
    short, name = shortened_path(LONG, width), "image_0012.jpg"
    assert min(width, len(name)) <= len(short) <= width
    assert (short == LONG) == (width >= len(LONG))
    assert short.endswith(name) == (width >= len(name))
    beginning, gap, end = short.partition("…")
    assert LONG.endswith(end)
    assert LONG.startswith(beginning) or name.startswith(beginning)
    assert gap or short in (LONG, name)


def test_a_name_without_a_folder_loses_its_middle() -> None:
    assert shortened_path("a_very_long_name.jpg", 11) == "a_ver…e.jpg"
    assert shortened_path("x.jpg", 11) == "x.jpg"


def test_a_probability_has_the_digits_that_tell_it_from_certainty() -> None:
    assert [precise(p) for p in (0.0, 0.992, 0.99912, 0.9999831, 1.0)] == [
        "0.0%",
        "99.2%",
        "99.912%",
        "99.9983%",
        "100.0%",
    ]


def test_control_characters_are_written_out() -> None:
    assert printable("a\x1b[31mb\x07\x7f\x9b\u202e.jpg\n\tc é") == "a\\x1b[31mb\\x07\\x7f\\x9b\\u202e.jpg\n\tc é"
    assert printable("a\rb") == "a\\rb"


def test_a_name_with_line_breaks_stays_on_one_line() -> None:
    name = "a\nb\tc\u2028d.jpg"
    assert one_line(name) == "a\\nb\\tc\\u2028d.jpg"
    for text in (shortened(name, 40), shortened_path(name, 40), listed([name])):
        assert text.strip("`") == one_line(name)


def test_products_saved_are_counted_in_words() -> None:
    assert against_the_fit(3) == "3 fewer than the fit took"
    assert against_the_fit(0) == "as many as the fit took"
    assert against_the_fit(-2) == "2 more than the fit took"


@pytest.mark.parametrize(("set", "width"), [("1", 40), ("60", 60), ("500", 80)])
def test_tables_fit_into_any_terminal(monkeypatch: pytest.MonkeyPatch, set: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", set)
    assert columns() == width
