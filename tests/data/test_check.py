"""Whether samples suffice to train on, where samples come in groups."""

import numpy as np
import pytest

from lqf.data import check_trainable, load_samples
from lqf.errors import LQFError

X = np.zeros((6, 8, 8, 3), dtype=np.uint8)
Y = np.array(["rose", "rose", "tulip", "tulip", "iris", "iris"])


def test_images_of_one_group_are_one_for_leave_one_out() -> None:
    (sentence,) = check_trainable(load_samples(X, Y, groups=["a", "b", "c", "d", "e", "e"]))
    assert sentence.startswith("classes with one group, whose error on unseen images is not known: `iris`;")
    (sentence,) = check_trainable(load_samples(X, Y, groups=["a", "a", "c", "c", "e", "e"]))
    assert "has one group: nothing can be left out" in sentence
    assert check_trainable(load_samples(X, Y, groups=list("abcdef"))) == []


def test_a_group_of_several_classes_counts_in_each() -> None:
    """The person of all images leaves with all of them."""
    (sentence,) = check_trainable(load_samples(X, Y, groups=["a", "b", "a", "b", "a", "a"]))
    assert "`iris`" in sentence
    assert "`rose`" not in sentence


def test_a_group_without_weight_is_none() -> None:
    weights = [1, 1, 1, 1, 1, 0]
    (sentence,) = check_trainable(load_samples(X, Y, groups=list("abcdef"), sample_weight=weights))
    assert "classes with one group" in sentence
    assert "`iris`" in sentence


@pytest.mark.parametrize("y", [[3, 15, 27, 39, 51, 63], ["3", "15", "27", "39", "51", "51"]], ids=["all", "most"])
def test_whole_numbers_of_which_most_are_different_are_said_to_be_names_of_classes(y: list[int | str]) -> None:
    (sentence,) = check_trainable(load_samples(X, y))
    assert "classification with one label an image only, no regression" in sentence
    (sentence,) = check_trainable(load_samples(X, [f"rose {k}" for k in y]))
    assert "regression" not in sentence


def test_samples_without_labels_are_refused() -> None:
    with pytest.raises(LQFError, match="has no label for"):
        check_trainable(load_samples(X))


def test_names_that_differ_in_capitals_or_spaces_alone_are_asked_about() -> None:
    (sentence,) = check_trainable(load_samples(X, ["Rose", "Rose", "rose", "rose", "tea rose", "tea rose"]))
    assert "are these the same class? `Rose` and `rose`; they are kept apart" in sentence
    (sentence,) = check_trainable(load_samples(X, ["tea rose"] * 2 + ["Tearose"] * 2 + ["x"] * 2), strict=True)
    assert "`Tearose` and `tea rose`" in sentence
    assert (
        check_trainable(load_samples(X, ["a", "a", "A", "A", "b", "b"])) == []
    )  # letters are other letters on purpose
