"""A stack: the weighted sum of its members' outputs, each in its own views of the images."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fits import CPU, classifier, data
from lqf import LQFClassifier
from lqf.data import load_samples, open_images
from lqf.evaluation.calibration import probabilities
from lqf.fitting import Stack
from refitted_stacks import NEW, WEIGHTS, X, Y, adopting, fitted_members, stack_of


@pytest.fixture(scope="module")
def members() -> list[LQFClassifier]:
    return fitted_members()


def test_outputs_are_the_weighted_sum_of_the_members(members: list[LQFClassifier]) -> None:
    model = adopting(members)
    found = [m.decision_function(NEW) for m in members]
    assert {m.fitted_.preprocess.views for m in members} == {"none", "flip"}
    expected = sum(w * f for w, f in zip(WEIGHTS, found, strict=True))
    np.testing.assert_allclose(model.decision_function(NEW), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(model.predict(NEW), model.classes_[expected.argmax(1)])
    beta = model.fitted_.beta
    np.testing.assert_allclose(model.predict_proba(NEW), probabilities(torch.tensor(expected), beta), rtol=1e-9)
    assert model.score(X, Y) > 0.5


def test_the_views_in_which_images_were_opened_do_not_matter(members: list[LQFClassifier]) -> None:
    stack = stack_of([m.fitted_ for m in members])
    opened = [open_images(load_samples(NEW), m.fitted_.preprocess) for m in members]
    a, b, c = (stack.outputs(images, device=CPU, batch_size=3) for images in opened)
    torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(c, a, rtol=1e-10, atol=1e-10)


def test_the_main_member_is_the_one_with_the_largest_share(members: list[LQFClassifier]) -> None:
    stack = stack_of([m.fitted_ for m in members])
    assert stack.main is members[1].fitted_
    other = replace(stack, shares=(0.6, 0.2, 0.2))
    assert other.main is members[0].fitted_
    assert (other.preprocess.views, stack.preprocess.views) == ("none", "flip")
    assert stack.classes == ("0", "1", "2")
    images = members[1].open(load_samples(NEW))
    torch.testing.assert_close(
        stack.features(images, device=CPU, batch_size=4), members[1].features(images), rtol=1e-10, atol=0
    )


def test_a_stack_of_heads_is_a_head_alone(members: list[LQFClassifier]) -> None:
    fitted = [m.fitted_ for m in members]
    assert not stack_of(fitted).head_alone
    assert stack_of([fitted[1], fitted[1]], (0.5, 0.5)).head_alone


def test_one_model_with_all_the_weight_is_that_model() -> None:
    x, y = data(18)
    one, other = (classifier(weight_decay=w, solver="head").fit(x, y) for w in (0.1, 3.0))
    model = classifier()
    model._adopt(stack_of([one.fitted_, other.fitted_], (1.0, 0.0)))
    assert isinstance(model.fitted_, Stack)
    new = data(5, seed=3)[0]
    np.testing.assert_array_equal(model.decision_function(new), one.decision_function(new))
