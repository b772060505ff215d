"""Stacks: every member changes; a fine-tuned one leaves, or is trained again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from finetuned_models import short, tuned_model
from fits import classifier, convnet, pictures
from lqf import LQFClassifier
from lqf.errors import LQFError
from lqf.fitting import FittedModel, Stack
from stacks import stacked

X, Y = pictures(18)
GONE = ["3", "7"]
GIVEN = {"backbone": convnet(), "size": 8, "pooling": "avg", "views": "none"}


@pytest.fixture(autouse=True)
def _short() -> Iterator[None]:
    with short():
        yield


def solved() -> dict[str, LQFClassifier]:
    return {"head": classifier(**GIVEN, solver="head").fit(X, Y), "LQF": classifier(**GIVEN, solver="dense").fit(X, Y)}


def whole(*, tuned: bool) -> LQFClassifier:
    """A stack of head and LQF, with a fine-tuned network or without."""
    models = solved()
    weights: tuple[float, ...] = (0.4, 0.6)
    if tuned:
        other = classifier(**GIVEN, solver="head")
        other._adopt(tuned_model(X, Y))
        models, weights = {**models, "fine-tuned": other}, (0.2, 0.3, 0.5)
    stack = stacked(models, weights)
    model = classifier(**GIVEN)
    setup = models["head"].fitted_.setup
    model._adopt(replace(stack, tried={n: m.fitted_.loo.outputs for n, m in models.items()}, setup=setup))
    return model


def test_every_member_forgets() -> None:
    model, alone = whole(tuned=False), solved()
    certificate = model.forget(GONE, train=X, verify=True)
    for one in alone.values():
        one.forget(GONE, train=X)
    stack = model.fitted_
    assert isinstance(stack, Stack)
    assert stack.weights == pytest.approx((0.4, 0.6), rel=1e-14)
    expected = sum(w * torch.tensor(m.decision_function(X)) for w, m in zip(stack.weights, alone.values(), strict=True))
    assert np.allclose(model.decision_function(X), expected.numpy(), atol=1e-9)
    assert [m.name for m in certificate.members] == ["head", "LQF"]
    assert certificate.difference < 1e-8
    assert "weights in the stack" in certificate.depends_on
    assert stack.train.ids == stack.members[0].train.ids == tuple(str(i) for i in range(18) if str(i) not in GONE)


def test_a_fine_tuned_member_leaves_and_weights_are_chosen_again(tmp_path: Path) -> None:
    model = whole(tuned=True)
    certificate = model.forget(GONE, train=X)
    stack = model.fitted_
    assert isinstance(stack, Stack)
    assert stack.names == ("head", "LQF")
    assert sum(stack.weights) == pytest.approx(1, rel=1e-14)
    assert [m.fate for m in certificate.members] == ["solved again", "solved again", "dropped"]
    assert "fine-tuned` left the stack" in certificate.sentence
    model.save(tmp_path / "run")
    again = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    assert np.allclose(again.decision_function(X), model.decision_function(X))


def test_a_fine_tuned_member_is_trained_again_on_request() -> None:
    model = whole(tuned=True)
    before = model.fitted_.members[2]
    certificate = model.forget(GONE, train=X, retrain=True)
    assert certificate.members[2].fate == "trained again"
    after = model.fitted_.members[2]
    assert isinstance(after, FittedModel)
    assert not after.solved
    assert len(after.train.ids) == 16
    assert not torch.equal(before.head, after.head)
    assert model.fitted_.loo is None
    assert model.predict(X).shape == (18,)


def test_every_member_is_added_to() -> None:
    model, alone = whole(tuned=False), solved()
    new, labels = pictures(4, seed=9)
    model.add(new, labels, train=X)
    for one in alone.values():
        one.add(new, labels, train=X)
    parts = zip(model.fitted_.weights, alone.values(), strict=True)
    expected = sum(w * torch.tensor(m.decision_function(X)) for w, m in parts)
    assert np.allclose(model.decision_function(X), expected.numpy(), atol=1e-9)
    assert len(model.fitted_.train.ids) == 22


def test_a_fine_tuned_network_alone_cannot_change_without_training() -> None:
    model = classifier(**GIVEN)
    fitted = tuned_model(X, Y)
    model._adopt(replace(fitted, setup=solved()["head"].fitted_.setup))
    with pytest.raises(LQFError, match="the model is a fine-tuned network"):
        model.forget(GONE, train=X)
    certificate = model.forget(GONE, train=X, retrain=True)
    assert certificate.members[0].fate == "trained again"
    assert certificate.bound is None
