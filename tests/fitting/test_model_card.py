"""The README.md of a model folder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fits import classifier, convnet, data, pictures
from lqf.fitting import FittedModel
from lqf.fitting.model_card import model_card
from stacks import stacked


@pytest.fixture(scope="module")
def model() -> FittedModel:
    return classifier(backbone=convnet(), size=8).fit(*pictures(12)).fitted_


def test_it_says_what_the_model_is(model: FittedModel) -> None:
    card = model_card(model, "9.9")
    front = pytest.importorskip("yaml").safe_load(card.split("---")[1])
    assert front["library_name"] == "lqf"
    assert front["pipeline_tag"] == "image-classification"
    value = front["model-index"][0]["results"][0]["metrics"][0]["value"]
    assert value == pytest.approx(1 - (model.report.loo_error or 0), abs=1e-4)
    for text in ("12 images of 3 classes, from data in memory", "| 0 | 4 |", "Leave-one-out error", "lqf 9.9"):
        assert text in card
    assert model.report.certificate in card
    assert "fewer than ten images" in card
    assert "Probabilities are calibrated" in card
    assert "The errors above hold for images" in card


def test_without_leave_one_out_nothing_is_calibrated() -> None:
    card = model_card(classifier(loo="none").fit(*data(12)).fitted_, "0")
    assert "Probabilities are not calibrated." in card
    assert "It was made for images" in card


def test_names_are_neither_html_nor_columns(model: FittedModel) -> None:
    names = ("<script>alert(1)</script>", "a|b", "c`d")
    card = model_card(replace(model, classes=names), "0")
    assert "<script>" not in card
    assert r"| a\|b | 4 |" in card


def test_where_the_data_lie_is_not_said(model: FittedModel) -> None:
    card = model_card(replace(model, train=replace(model.train, source="/home/me/secret/photos")), "0")
    assert "from photos." in card
    assert "secret" not in card


def test_of_a_stack() -> None:
    x, y = data(18)
    models = {name: classifier(weight_decay=w).fit(x, y) for name, w in (("head", 0.1), ("LQF", 1.0))}
    card = model_card(stacked(models, (0.4, 0.6)), "0")
    assert "Expected error on new images like these: **15.3%**" in card
    assert "| head, mirror images | 16.3% | 0.404 | no: gains nothing |" in card
