"""Models of other kinds: dense fits answer exactly, conjugate gradients say what they do not know."""

from typing import Any

import pytest

from fits import convnet, photos
from lqf import LQFClassifier
from lqf.serve import answers
from lqf.serve.session import Session
from stacks import stacked

CLASSES = ("blue", "green", "red")


@pytest.fixture(scope="module", params=["dense", "pcg"])
def of_kind(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    photos(folder / "train", 4, classes=CLASSES)
    photos(folder / "test", 2, seed=3, classes=CLASSES)
    fixed: dict[str, Any] = {"pooling": "avg", "size": 8, "device": "cpu", "dtype": "float64", "views": "none"}
    model = LQFClassifier(convnet(), solver=request.param, weight_decay=0.5, body_weight_decay=2.0, **fixed)
    model.fit(str(folder / "train"))
    return Session.open(model, "run", folder / "out", test=str(folder / "test"))


def test_what_if_and_leave_one_out(of_kind):
    dense = of_kind.analysis.level == "exact"
    one = answers.image(of_kind, "test", 1)
    gone = [p["n"] for p in one["towards"][:2]]
    found = answers.what_if(of_kind, "test", 1, gone)
    assert found["level"] == ("exact" if dense else "solved")
    expected = of_kind.analysis.what_if(of_kind.test.images.samples, without=gone)
    assert found["probability"] == pytest.approx(float(expected.probabilities[1].max()), abs=1e-6)
    assert 0 <= found["test"]["after"] <= 1
    of_kind.correct(0, "relabel", "red")
    told = answers.corrections(of_kind)["leave_one_out"]
    of_kind.corrections.undo()
    if dense:
        assert told["level"] == found["leave_one_out"]["level"] == "exact"
        assert 0 <= told["after"] <= 1
    else:
        assert told["after"] is None
        assert "heads and dense fits" in told["why"]


def test_a_stack(of_kind):
    """Every question of the page goes through the members."""
    model = of_kind.model
    head = LQFClassifier(convnet(), solver="head", pooling="avg", size=8, device="cpu", dtype="float64", views="none")
    head.fit(model.fitted_.train.source)
    stack = model._like(stacked({"head": head, "last": model}, (0.3, 0.7)))
    session = Session.open(stack, "run", of_kind.out, test=str(of_kind.out.parent / "test"))
    one = answers.image(session, "test", 0)
    found = answers.what_if(session, "test", 0, [one["towards"][0]["n"]])
    expected = session.analysis.what_if(session.test.images.samples, without=found["without"])
    assert found["probability"] == pytest.approx(float(expected.probabilities[0].max()), abs=1e-6)
    assert answers.about(session)["solver"] == "stack"
    assert answers.labels(session, {})["n"] >= 0


def test_lists_and_labels(of_kind):
    assert answers.images(of_kind, "train", {"order": "doubtful"})["n"] == 12
    assert answers.labels(of_kind, {})["leave_one_out"]["before"] == of_kind.error
