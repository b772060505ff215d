"""Which rungs are planned, in which order, and how the plan is said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from finetuned_models import short
from fits import classifier, convnet, pictures
from lqf.fitting.rungs.linear import LinearRung
from lqf.fitting.rungs.pace import Pace
from recorder import Recorder

COMMON: dict[str, Any] = {"backbone": convnet(), "solver": "auto", "size": 8, "pooling": "avg"}


@pytest.fixture(autouse=True)
def _few_epochs() -> Iterator[None]:
    """A fine-tuning is a rung like any other here."""
    with short(6):
        yield


def paced(monkeypatch: pytest.MonkeyPatch, row: float) -> None:
    monkeypatch.setattr(Pace, "measure", classmethod(lambda cls, *args: cls(row, 1e12, "cpu")))


def said(**params: Any) -> tuple[list[str], dict[str, Any]]:
    """The lines of the plan, and the rungs of the report."""
    seen = Recorder()
    model = classifier(**COMMON, **params).fit(*pictures(30), progress=seen)
    lines = [line.strip() for line in seen.said[1:] if line.startswith("  ")]
    return lines, {r["name"]: r for r in model.report_["rungs"]}


def test_where_lqf_takes_too_long_its_last_stage_comes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    paced(monkeypatch, row=0.1)  # LQF: 150 passes of 60 rows
    lines, rungs = said(time_limit=100)
    assert [line.partition("  ")[0] for line in lines[3:5]] == ["last stage", "LQF"]
    assert lines[4].endswith(", if time is left")
    assert rungs["last stage"]["stage"] == "deep"
    assert rungs["last stage"]["seconds"] is not None
    assert rungs["LQF"]["seconds"] is None


def test_where_there_is_time_the_last_stage_stands_in_for_an_lqf_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paced(monkeypatch, row=1e-4)
    lines, rungs = said(time_limit=100)
    assert [line.partition("  ")[0] for line in lines[3:5]] == ["LQF", "last stage"]
    assert lines[4].endswith(", if LQF takes too long")
    assert rungs["LQF"]["seconds"] is not None
    assert rungs["last stage"]["why"] == "is a part of LQF, which was tried"
    make = LinearRung._seconds

    def slow(self: LinearRung, *args: Any) -> float:
        under_way = self.stage == "all" and len(seen) > 0  # the plan expects it to be quick
        seen.append(self.name)
        return 1e4 if under_way else make(self, *args)

    seen: list[str] = []
    monkeypatch.setattr(LinearRung, "_seconds", slow)
    _, rungs = said(time_limit=100)
    assert rungs["LQF"]["why"].startswith("needs about 167 min")
    assert rungs["last stage"]["seconds"] is not None


def test_a_last_stage_that_takes_too_long_in_all_views_is_tried_in_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    paced(monkeypatch, row=0.02)

    def slow(self: LinearRung, ground: Any, rows: int) -> float:
        return 1e4 if rows > 60 or self.stage == "all" else 0.1

    monkeypatch.setattr(LinearRung, "_seconds", slow)
    monkeypatch.setattr("lqf.evaluation.paired.LEAST_GAIN", -10.0)
    monkeypatch.setattr("lqf.fitting.rungs.heads.DOUBT", 1e3)
    _, rungs = said(time_limit=100)
    assert rungs["head, 8 views"]["kept"]
    assert rungs["last stage"]["views"] == "flip"


def test_without_a_limit_there_is_no_last_stage() -> None:
    lines, rungs = said(effort="standard")
    assert "last stage" not in rungs
    assert [line.partition("  ")[0] for line in lines] == list(rungs)
    assert LinearRung("LQF", "all").kind == "linear"
