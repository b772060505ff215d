"""Models of other kinds: dense fits answer exactly, conjugate gradients say what they do not know."""

import csv
from typing import Any

import numpy as np
import pytest

from fits import convnet, photos
from lqf import LQFClassifier
from lqf.serve import answers
from lqf.serve.apply import apply, free
from lqf.serve.corrections import Correction
from lqf.serve.session import Session
from lqf.serve.watched import Watched
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
    stack = model.with_model(stacked({"head": head, "last": model}, (0.3, 0.7)))
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


def test_corrections_are_an_exact_change(of_kind):
    """The applied model is the one that the page has spoken of."""
    test = str(of_kind.test.images.samples.source.paths[0].parents[1])
    corrected = {0: Correction("red"), 5: Correction(None)}
    found = apply(of_kind, corrected, free(of_kind.out), Watched())
    assert found.exact
    wanted = of_kind.analysis.what_if(test, without=[5], relabel={0: "red"})
    again = LQFClassifier.load(found.path, backbone=convnet(), device="cpu")
    enough = 1e-8 if of_kind.analysis.level == "exact" else 0.1  # of about ten, by two solves to a tolerance
    np.testing.assert_allclose(again.decision_function(test), wanted.value, atol=enough)
    assert again.fitted_.settings.weight_decay == 0.5
    with found.files[0].open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert (len(rows), rows[-1]["label"]) == (11, "red")


def test_a_stack_is_changed_member_by_member(of_kind):
    if of_kind.analysis.level != "exact":
        return
    stack = of_kind.model.with_model(stacked({"a": of_kind.model, "b": of_kind.model}, (0.5, 0.5)))
    session = Session.open(stack, "run", of_kind.out)
    found = apply(session, {0: Correction("red")}, free(of_kind.out), Watched())
    assert found.exact
    test = str(of_kind.test.images.samples.source.paths[0].parents[1])
    wanted = session.analysis.what_if(test, relabel={0: "red"})
    again = LQFClassifier.load(found.path, backbone=convnet(), device="cpu")
    np.testing.assert_allclose(again.decision_function(test), wanted.value, atol=1e-8)
