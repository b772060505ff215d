"""One picture or many: what a shape means, against what was fitted."""

import numpy as np
import pytest
import torch

from lqf.data.readers.layout import picture_batch, tensor_batch
from lqf.errors import LQFError

COLOUR, GREY, FILES = (8, 9, 3), (28, 28), None


@pytest.mark.parametrize("fitted", [COLOUR, FILES, (3, 8, 9)])
@pytest.mark.parametrize(
    "shape", [(200, 300, 3), (3, 200, 300), (200, 300, 4), (200, 300, 1), (1, 200, 300), (3, 200, 3)]
)
@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_one_picture_with_channels_is_one(make, shape, fitted):
    assert tuple(picture_batch(make(shape), fitted).shape) == (1, *shape)


@pytest.mark.parametrize("shape", [(5, 200, 300, 3), (5, 3, 200, 300), (1, 200, 300, 1)])
@pytest.mark.parametrize("fitted", [COLOUR, GREY, FILES])
def test_four_axes_are_many(shape, fitted):
    assert picture_batch(np.zeros(shape), fitted).shape == shape


@pytest.mark.parametrize("shape", [(200, 300, 500), (200, 300), (12,), (2, 3, 4, 5, 6)])
@pytest.mark.parametrize("fitted", [COLOUR, FILES])
def test_grey_ones_are_not_taken_for_granted(shape, fitted):
    with pytest.raises(LQFError) as raised:
        picture_batch(np.zeros(shape), fitted)
    sentence = str(raised.value)
    assert f"an array of shape {shape} was given to a model fitted on pictures" in sentence
    assert all(known in sentence for known in ("(H, W, 3)", "(3, H, W)", "(N, H, W, 3)", "(N, 3, H, W)"))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((10, 28, 28), (10, 28, 28)),
        ((3, 28, 28), (3, 28, 28)),  # the shape of the fit is convincing
        ((10, 40, 50), (10, 40, 50)),
        ((28, 28), (1, 28, 28)),
        ((40, 50), (1, 40, 50)),
        ((40, 50, 3), (1, 40, 50, 3)),
        ((1, 40, 50), (1, 1, 40, 50)),
    ],
)
def test_of_a_model_fitted_on_grey_arrays(shape, expected):
    assert picture_batch(np.zeros(shape), GREY).shape == expected


@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_what_may_be_three_grey_ones_or_one_in_colour_is_refused(make):
    with pytest.raises(LQFError, match=r"fitted on grey pictures \(28, 28\); one picture is"):
        picture_batch(make((3, 40, 50)), GREY)


def test_normalized_tensors():
    one, many = torch.zeros(3, 8, 8), torch.zeros(5, 3, 8, 8)
    assert tensor_batch(one, (3, 8, 8)).shape == (1, 3, 8, 8)
    assert tensor_batch(many, (3, 8, 8)) is many
    assert tensor_batch(torch.zeros(3, 12, 12), (3, 8, 8)).shape == (1, 3, 12, 12)
    assert tensor_batch(torch.zeros(12), (12,)).shape == (1, 12)
    assert tensor_batch(one, None) is one


@pytest.mark.parametrize(
    ("shape", "fitted"),
    [((8, 8, 3), (3, 8, 8)), ((5, 8, 8, 3), (3, 8, 8)), ((5, 11), (12,)), ((2, 5, 3, 8, 8), (3, 8, 8)), ((), (12,))],
)
def test_tensors_of_another_shape_are_refused(shape, fitted):
    with pytest.raises(LQFError) as raised:
        tensor_batch(torch.zeros(shape), fitted)
    assert f"a tensor of shape {shape} was given to a model fitted on tensors of shape {fitted}" in str(raised.value)
