"""Items that are dicts, and class names, as data sets of Hugging Face have them."""

from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import Dataset

from lqf.data import load_samples, load_unlabelled
from lqf.errors import LQFError


class Rows:
    """A map-style sequence, and no torch Dataset."""

    def __init__(self, rows: list[Mapping], names: list[str] | None = None, key: str = "label"):
        self.rows = rows
        self.features = {"image": object(), key: SimpleNamespace(names=names)}
        self.column_names = list(rows[0])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Mapping:
        return self.rows[i]


@pytest.fixture
def pictures() -> list[Image.Image]:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 9, 3), dtype=np.uint8)
    return [Image.fromarray(p) for p in pixels]


@pytest.mark.parametrize("image", ["image", "img", "pixel_values"])
@pytest.mark.parametrize("label", ["label", "labels"])
def test_dicts(pictures, image, label):
    rows = [{"id": i, image: p, label: i % 2} for i, p in enumerate(pictures)]
    for source in (rows, Rows(rows)):
        samples = load_samples(source)
        assert samples.labels.tolist() == [0, 1, 0, 1]
        assert np.array_equal(samples.source.read(2), pictures[2])


def test_class_names_of_features(pictures):
    rows = [{"image": p, "label": 2 - i % 2} for i, p in enumerate(pictures)]
    samples = load_samples(Rows(rows, ["ant", "bee", "a; or b"]))
    assert samples.classes == ("a; or b", "bee")  # names of a data set are one label each, whatever they contain
    assert samples.labels.tolist() == [0, 1, 0, 1]


def test_a_torch_data_set_of_dicts(pictures):
    class Torch(Rows, Dataset):
        pass

    rows = [{"img": p, "labels": i % 2} for i, p in enumerate(pictures)]
    assert load_samples(Torch(rows, ["x", "y"], "labels")).classes == ("x", "y")


def test_labels_are_not_needed_to_predict(pictures):
    rows = Rows([{"image": p} for p in pictures])
    assert load_unlabelled(rows).labels.tolist() == [-1] * 4
    with pytest.raises(LQFError, match=r"item 0 of the data set has no label \(label, labels, .*it has `image`"):
        load_samples(rows)
    assert load_samples(rows, list("abab")).classes == ("a", "b")
    assert load_unlabelled([(p, "?") for p in pictures]).classes == ()


def test_errors(pictures):
    with pytest.raises(LQFError, match=r"has no image \(image, img, pixel_values\); it has `file`, `label`"):
        load_samples(Rows([{"file": "a.png", "label": 0}]))
    with pytest.raises(LQFError, match="a dict of `train`, `test` was given; expected one of its parts"):
        load_samples({"train": [1], "test": [2]})
    with pytest.raises(LQFError, match=r"label number 1 is \[0, 1\].* one label an image only"):
        load_samples([{"image": p, "label": [0, 1] if i else 0} for i, p in enumerate(pictures)])
