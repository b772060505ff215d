"""Quick and exact explanations: which one is given unasked, what is said before time is spent, and how they agree."""

from __future__ import annotations

from typing import Any

import pytest

from fits import FIXED, classifier, data
from lqf import LQFClassifier, LQFError
from lqf.analysis.by_iteration import ByIteration
from recorder import Recorder

X, Y = data(18)
NEW = data(2, seed=7)[0]


@pytest.fixture(scope="module")
def model() -> LQFClassifier:
    return classifier(solver="pcg", tol=1e-3, verbose=0, **FIXED).fit(X, Y)


def asked(model: LQFClassifier, **options: Any) -> tuple[Any, list[str]]:
    said, model.analysis_ = Recorder(), None
    return model.explain(NEW, train=X, progress=said, **options), said.said


def test_what_takes_seconds_is_exact_and_nothing_is_said(model: LQFClassifier) -> None:
    explained, said = asked(model)
    assert "responses within" in explained.note
    assert said == []


def test_what_takes_long_is_estimated_and_a_line_says_how_long_the_exact_answer_takes(
    model: LQFClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ByIteration, "seconds", lambda _, images, quick: 3.0 if quick else 40.0)
    explained, said = asked(model)
    assert (explained.level, "EK-FAC" in explained.note) == ("estimated", True)
    assert said == ["a quick answer, in about 3.0 s; quick=False takes about 40.0 s"]


def test_who_waits_sees_the_quick_answer_first_and_how_it_agrees(
    model: LQFClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, _ = asked(model, quick=True)
    monkeypatch.setattr(ByIteration, "seconds", lambda _, images, quick: 3.0 if quick else 40.0)
    explained, said = asked(model, quick=False)
    assert said[0] == "about 40.0 s; a quick answer takes 3.0 s: quick=True"
    assert said[1].startswith("estimated, the linearisation point held fixed; by the head's kernel")
    assert quick[0].towards[0].name in said[1]
    assert "the quick answer's correlation with it is " in explained.note
    assert len(said) == 2


def test_a_class_that_is_asked_for_is_explained(model: LQFClassifier) -> None:
    explained, _ = asked(model, of="1")
    assert {e.explained for e in explained} == {"1"}
    assert all(e.against != "1" and e.share < 0.5 for e in explained if e.predicted != "1")
    with pytest.raises(LQFError, match="there is no class `5`; the model knows 0, 1, 2"):
        asked(model, of="5")


def test_units_that_come_last_are_kept_until_there_are_enough() -> None:
    analysis = classifier(weight_decay=0.1, body_weight_decay=0.2).fit(X, Y).analyse(X)
    order = analysis.leaving()
    assert analysis.keep(0.5).tolist() == sorted(order[-9:].tolist())
