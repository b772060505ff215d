"""Sums of fitted models: their outputs are the sums of outputs, and what has no common point is refused."""

from typing import Any

import numpy as np
import pytest

from fits import classifier, convnet, data, network, pictures
from lqf import LQFClassifier, LQFError
from lqf.fitting import Stack
from stacks import stacked

POINT: dict[str, Any] = {"head": "random"}
"""A point that no label changes, so that models of other data share it."""


@pytest.fixture(scope="module")
def pair() -> tuple[LQFClassifier, LQFClassifier]:
    return classifier(**POINT).fit(*data(18)), classifier(**POINT, weight_decay=0.3).fit(*data(15, seed=4))


NEW = data(9, seed=3)[0]


def test_a_sum_predicts_the_sum_of_outputs(pair):
    a, b = pair
    fa, fb = a.decision_function(NEW), b.decision_function(NEW)
    for model, expected in (
        (0.5 * a + b, 0.5 * fa + fb),
        (a - b, fa - fb),
        (a * 3, 3 * fa),
        (-a / 4 + 2 * b - a, -1.25 * fa + 2 * fb),
    ):
        np.testing.assert_allclose(model.decision_function(NEW), expected, atol=1e-10)
    assert np.abs(fa - fb).max() > 1e-2
    assert len((a + b).fitted_.delta) == len(a.fitted_.delta)


def test_it_works_around_w0_with_one_output_and_of_heads():
    x, y = data(14, 2)
    for how in ({"form": "w0", **POINT}, {"solver": "head"}, POINT):
        a = classifier(**how).fit(x, y)
        b = classifier(**how, weight_decay=2.0).fit(x[:10], y[:10])
        expected = a.decision_function(NEW) - 0.25 * b.decision_function(NEW)
        np.testing.assert_allclose((a - 0.25 * b).decision_function(NEW), expected, atol=1e-10)


def test_a_head_alone_is_a_model_around_any_point(pair):
    head = classifier(solver="head").fit(*data(18))
    for model in (pair[0] - head, -1 * head + pair[0]):
        expected = pair[0].decision_function(NEW) - head.decision_function(NEW)
        np.testing.assert_allclose(model.decision_function(NEW), expected, atol=1e-10)


def test_a_multiple_has_the_same_probabilities(pair):
    np.testing.assert_allclose((2.5 * pair[0]).predict_proba(NEW), pair[0].predict_proba(NEW), atol=1e-10)
    half = 0.5 * pair[0] + 0.5 * pair[0]
    np.testing.assert_allclose(half.predict_proba(NEW), pair[0].predict_proba(NEW), atol=1e-10)


def test_between_two_strengths_lies_what_tuning_changed():
    x, y = data(18)
    model = classifier().fit(x, y)  # the cross-fitted point stays where a model is tuned
    tuned = model.tuned(2.0, 5.0, train=x)
    half = 0.5 * model + 0.5 * tuned
    expected = (model.decision_function(NEW) + tuned.decision_function(NEW)) / 2
    np.testing.assert_allclose(half.decision_function(NEW), expected, atol=1e-10)


def test_it_is_saved_and_loaded(pair, tmp_path):
    model = 0.5 * pair[0] - 2 * pair[1]
    model.save(tmp_path / "run")
    again = LQFClassifier.load(tmp_path / "run", backbone=network(), device="cpu")
    np.testing.assert_array_equal(again.decision_function(NEW), model.decision_function(NEW))
    assert again.fitted_.report == model.fitted_.report
    assert "sum of models" in repr(again)
    assert len(again.fitted_.train.ids) == 18 + 15
    np.testing.assert_allclose((again + 2 * pair[1]).decision_function(NEW), 0.5 * pair[0].decision_function(NEW))


def test_questions_about_training_samples_are_refused(pair):
    model = pair[0] + pair[1]
    for ask in (model.leave_one_out, lambda: model.analyse(data(18)[0]), lambda: model.tune(train=data(18)[0])):
        with pytest.raises(LQFError, match="sum of fitted models"):
            ask()
    assert model.report_["loo_error"] is None
    assert model.report_["error"] is None


@pytest.mark.parametrize(
    ("how", "names", "reason"),
    [
        ({"head": "crossfit"}, None, "linearisation points differ"),
        ({"backbone": network(1), "tensors": "normalized"}, None, "different weights of the network"),
        ({"linearize": "second"}, None, "linearised from `all` on and one from `second` on"),
        ({"alpha": 3.0}, None, r"different scales of the targets \(15 and 3\)"),
        ({}, np.array(["ash", "birch", "cedar"]), r"different classes \(`0`, `1`, `2` and `ash`, `birch`, `cedar`\)"),
    ],
)
def test_models_without_a_common_point_are_refused(pair, how, names, reason):
    x, y = data(18)
    other = classifier(**POINT | how).fit(x, y if names is None else names[y])
    with pytest.raises(LQFError, match=reason):
        _ = pair[0] + other


def test_other_views_are_refused():
    a, b = (classifier(backbone=convnet(), solver="head", size=8, views=v).fit(*pictures(12)) for v in ("none", "flip"))
    with pytest.raises(LQFError, match=r"different views \(`none` and `flip`\)"):
        _ = a + b


def test_what_is_no_model_and_no_number_is_refused(pair):
    for wrong in (lambda: pair[0] + 1, lambda: pair[0] * "2", lambda: pair[0] * pair[1], lambda: pair[0] / 0):
        with pytest.raises(TypeError):
            wrong()
    for factor in (0, float("nan"), float("inf")):
        with pytest.raises(LQFError, match="not zero"):
            _ = factor * pair[0]


def stack(*models: LQFClassifier, weights: tuple[float, ...]) -> LQFClassifier:
    names = [f"rung {k}" for k in range(len(models))]
    return models[0].with_model(stacked(dict(zip(names, models, strict=True)), weights))


@pytest.fixture(scope="module")
def stacks() -> tuple[LQFClassifier, LQFClassifier]:
    """Two of a head and LQF around two points, on other samples."""
    both = []
    for x, y in (data(18), data(15, seed=4)):
        one = [classifier(**POINT, seed=s, weight_decay=0.1, body_weight_decay=0.2).fit(x, y) for s in (0, 1)]
        both.append(stack(*one, weights=(0.75, 0.25) if not both else (0.4, 0.6)))
    return both[0], both[1]


def test_stacks_are_added_member_by_member(stacks, tmp_path):
    a, b = stacks
    fa, fb = a.decision_function(NEW), b.decision_function(NEW)
    for model, expected in ((0.5 * a + b, 0.5 * fa + fb), (a - 3 * b, fa - 3 * fb), (-a, -fa)):
        np.testing.assert_allclose(model.decision_function(NEW), expected, atol=1e-10)
        assert isinstance(model.fitted_, Stack)
        assert len(model.fitted_.members) == 2
        assert sum(model.fitted_.weights) == pytest.approx(1)
    model = 0.5 * a + b
    model.save(tmp_path / "run")
    again = LQFClassifier.load(tmp_path / "run", backbone=network(), device="cpu")
    np.testing.assert_array_equal(again.decision_function(NEW), model.decision_function(NEW))
    np.testing.assert_allclose((2.5 * a).predict_proba(NEW), a.predict_proba(NEW), atol=1e-10)
    for ask in (model.leave_one_out, lambda: model.forget(["0"]), lambda: model.analyse(data(18)[0])):
        with pytest.raises(LQFError, match="sum of"):
            ask()


def test_a_stack_and_a_model_of_another_point_are_a_larger_stack(stacks, pair):
    head, other = classifier(solver="head").fit(*data(18)), classifier(**POINT, seed=2).fit(*data(18))
    for more, members in ((pair[0], 2), (head, 2), (other, 3)):
        model = stacks[0] + 2 * more
        expected = stacks[0].decision_function(NEW) + 2 * more.decision_function(NEW)
        np.testing.assert_allclose(model.decision_function(NEW), expected, atol=1e-10)
        assert len(model.fitted_.members) == members
        assert len(set(model.fitted_.names)) == members


def test_a_stack_around_one_point_becomes_one_model(pair):
    other = classifier(**POINT, weight_decay=0.3).fit(*data(18))
    whole = stack(pair[0], other, weights=(0.3, 0.7)) + pair[0]
    expected = 1.3 * pair[0].decision_function(NEW) + 0.7 * other.decision_function(NEW)
    np.testing.assert_allclose(whole.decision_function(NEW), expected, atol=1e-10)
    assert not isinstance(whole.fitted_, Stack)


def test_stacks_of_other_classes_are_refused(stacks):
    x, y = data(18)
    other = classifier(**POINT).fit(x, np.array(["ash", "birch", "cedar"])[y])
    with pytest.raises(LQFError, match="different classes"):
        _ = stacks[0] + other
