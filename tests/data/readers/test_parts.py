"""A folder of `train` and `test` is not a folder of two classes."""

import pytest

from lqf.data import load_samples
from lqf.errors import LQFError


@pytest.mark.parametrize(("train", "test"), [("train", "test"), ("Training", "VAL"), ("train", "validation")])
def test_parts_of_a_data_set_are_refused_with_the_commands(tree, train, test):
    root = tree({f"{part}/{c}/1.png": 0 for part in (train, test) for c in ("rose", "tulip")}, "my data")
    with pytest.raises(LQFError, match="parts of a data set, not classes") as raised:
        load_samples(root)
    assert f"`lqf fit '{root}/{train}' -o RUN`" in str(raised.value)
    assert f"`lqf evaluate RUN '{root}/{test}'`" in str(raised.value)


def test_one_part_alone(tree):
    root = tree({"train/rose/1.png": 0, "train/tulip/1.png": 0})
    with pytest.raises(
        LQFError, match=r"holds `train`, a part of a data set, not a class; run `lqf fit .*/train -o RUN`"
    ):
        load_samples(root)


def test_the_test_set_before_the_validation_set(tree):
    root = tree({f"{part}/rose/1.png": 0 for part in ("train", "val", "test")})
    with pytest.raises(LQFError, match=r"RUN .*/test"):
        load_samples(root)


@pytest.mark.parametrize(
    "files",
    [
        {"train/1.png": 0, "test/1.png": 1},
        {"train/steam/1.png": 0, "test/1.png": 1},
        {"train/steam/1.png": 0, "car/red/1.png": 1},
    ],
    ids=["no class folders below", "below one of them", "another class"],
)
def test_classes_may_be_called_train(tree, files):
    assert len(load_samples(tree(files)).classes) == 2
