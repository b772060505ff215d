"""Data frames: columns by name, rows as samples."""

import numpy as np
import pytest
from PIL import Image

from lqf.data import Preprocess, load_samples, load_unlabelled, open_images
from lqf.errors import LQFError

pd = pytest.importorskip("pandas")
SMALL = Preprocess(8)


@pytest.fixture
def paths(flowers):
    return [str(path) for path in sorted(flowers.rglob("*.png"))]


def test_paths_and_labels(paths):
    frame = pd.DataFrame({"note": range(6), "Path": paths, "label": list("xxyyxy")}, index=list("fedcba"))
    samples = load_samples(frame)
    assert samples.ids == tuple(paths)
    assert samples.classes == ("x", "y")
    assert samples.labels.tolist() == [0, 0, 1, 1, 0, 1]
    assert samples.weights.tolist() == [1] * 6
    assert samples.groups is None
    assert len(open_images(samples, SMALL, strict=True)) == 6


def test_weights_and_groups_with_blanks(paths):
    frame = pd.DataFrame(
        {
            "path": paths,
            "label": pd.Categorical([2, 2, 10, 10, 2, 10]),
            "weight": [2, None, 0.5, 1, 1, 0],
            "group": ["g", "g", None, pd.NA, "", 7],
        }
    )
    samples = load_samples(frame)
    assert samples.classes == ("2", "10")
    assert samples.weights.tolist() == [2, 1, 0.5, 1, 1, 0]
    assert samples.groups == ("g", "g", *paths[2:5], "7")


def test_images_in_place_of_paths():
    pictures = [Image.new("RGB", (9, 9), (i, 0, 0)) for i in range(4)]
    samples = load_samples(pd.DataFrame({"image": pictures, "label": list("abab")}))
    assert samples.ids == ("0", "1", "2", "3")
    assert open_images(samples, SMALL).batch([3])[0, 0].unique().tolist() == [3]


def test_a_column_image_may_hold_paths(paths):
    assert load_samples(pd.DataFrame({"image": paths, "label": list("xxyyxy")})).ids == tuple(paths)


def test_cells_that_are_neither_are_refused():
    with pytest.raises(LQFError, match="item 0 of the data frame is a dict; an image is"):
        load_samples(pd.DataFrame({"image": [{"bytes": b"x"}, {"bytes": b"y"}], "label": [0, 1]}))


def test_a_column_of_paths_and_one_of_labels(paths):
    frame = pd.DataFrame({"path": paths, "label": list("xxyyxy")})
    assert load_samples(frame["path"], frame["label"]).labels.tolist() == [0, 0, 1, 1, 0, 1]
    assert load_samples(frame[["path"]], frame["label"]).labels.tolist() == [0, 0, 1, 1, 0, 1]


def test_to_predict_a_path_suffices(paths):
    samples = load_unlabelled(pd.DataFrame({"path": [*paths, paths[0]]}), each=True, classes=("a", "b"))
    assert samples.ids == (*paths, f"{paths[0]} (2)")
    assert samples.labels.tolist() == [-1] * 7
    assert load_unlabelled(pd.DataFrame({"path": paths, "label": ["?"] * 6})).classes == ()


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"file": [1], "label": [1]}, "no column path; its header is 'file,label'"),
        ({"path": ["a.png"]}, "no column label"),
        ({0: [1], 1: [2]}, "no column path and no column label"),
        ({"path": [], "label": []}, "is empty"),
        ({"path": ["gone.png"], "label": [1]}, "of 1 path these are not files: `gone.png`; relative paths begin at"),
        ({"path": ["gone.png", None], "label": [1, 1]}, "no path in row 1"),
        ({"path": ["a.png"], "label": ["x"], "weights": [1]}, "column weights; call it weight"),
    ],
)
def test_errors(columns, sentence):
    with pytest.raises(LQFError, match=sentence):
        load_samples(pd.DataFrame(columns))


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ({"label": ["x", None, "y", "x", "y", "x"]}, r"no label in row 1 \(1 in all\)"),
        ({"label": ["x", "x;y", "y", "x", "y", "x"]}, "label number 1 is 'x;y'.* one label an image only"),
        ({"label": np.linspace(0.1, 0.7, 6)}, "label number 0 is 0.1.* one label an image only"),
        ({"weight": [1, 1, -1, 1, 1, 1]}, "the weight -1 in row 2"),
        ({"weight": [1, 1, "heavy", 1, 1, 1]}, "the weight heavy in row 2"),
    ],
)
def test_bad_cells_are_named(paths, column, sentence):
    with pytest.raises(LQFError, match=sentence):
        load_samples(pd.DataFrame({"path": paths, "label": list("xxyyxy")} | column))
