"""Values of a file have the types that a dataclass says, or the field is named."""

from dataclasses import dataclass

import pytest

from lqf.utils.typed import check_types


@dataclass(frozen=True)
class Inner:
    x: float


@dataclass(frozen=True)
class Example:
    number: float
    count: int
    name: str | None
    pairs: tuple[tuple[str, str], ...]
    inner: Inner
    table: dict[str, float]


GOOD = {"number": 1, "count": 2, "name": None, "pairs": [["a", "b"]], "inner": {"x": 1}, "table": {"a": 1.5}}


def test_json_values_pass_and_absent_ones_do_not_matter() -> None:
    check_types(Example, GOOD)
    check_types(Example, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", "1"),
        ("number", True),
        ("count", 1.5),
        ("name", 3),
        ("pairs", "ab"),
        ("pairs", [["a"]]),
        ("inner", 3),
        ("table", {"a": "b"}),
    ],
)
def test_another_type_is_named(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=name):
        check_types(Example, {**GOOD, name: value})
