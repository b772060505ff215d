"""What people bring: one image or many, floats or bytes, arrays or folders; to fit, to score and to predict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fits import classifier, convnet, data, network, photos, pictures
from lqf import LQFClassifier, LQFError
from lqf.data import load_samples, open_images
from lqf.storage.checks import digest
from recorder import Recorder

X, Y = pictures(12)
NAMES = np.array(["red", "green", "blue"])[Y]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def head(**params: Any) -> LQFClassifier:
    return classifier(**{"backbone": convnet(), "solver": "head", "size": 8, "views": "none", **params})


@pytest.fixture(scope="module")
def model() -> LQFClassifier:
    return head().fit(X, NAMES)


ONE = {
    "array": X[0],
    "floats": X[0] / 255,
    "uint8 tensor": torch.from_numpy(X[0]).permute(2, 0, 1),
    "float tensor": torch.from_numpy(X[0]).permute(2, 0, 1) / 255,
    "PIL image": Image.fromarray(X[0]),
}


@pytest.mark.parametrize("form", ONE)
def test_one_image_is_one_prediction(model: LQFClassifier, form: str) -> None:
    assert model.predict(ONE[form]).shape == (1,)
    np.testing.assert_array_equal(model.predict_proba(ONE[form]), model.predict_proba(X[:1]))
    assert model.decision_function(ONE[form]).shape == (1, 3)


def test_one_large_image_is_one_prediction(model: LQFClassifier) -> None:
    assert model.predict(np.zeros((200, 300, 3), np.uint8)).shape == (1,)


@pytest.mark.parametrize("shape", [(200, 300, 200), (200, 300), (12,), (2, 8, 8, 2)])
def test_other_shapes_are_refused_with_those_that_are_understood(model: LQFClassifier, shape: tuple[int, ...]) -> None:
    with pytest.raises(LQFError, match=r"\(H, W"):
        model.predict(np.zeros(shape, np.uint8))


def test_a_path_a_folder_and_a_manifest(model: LQFClassifier, tmp_path: Path) -> None:
    folder = photos(tmp_path / "new", 2)
    paths = sorted(folder.rglob("*.png"))
    (tmp_path / "list.csv").write_text("path\n" + "".join(f"{p}\n" for p in paths))
    expected = model.predict_proba([np.asarray(Image.open(p)) for p in paths])
    for source in (folder, paths, [str(p) for p in paths], tmp_path / "list.csv", np.array([str(p) for p in paths])):
        np.testing.assert_array_equal(model.predict_proba(source), expected)
    np.testing.assert_array_equal(model.predict_proba(str(paths[1])), expected[1:2])
    assert model.predict([paths[0], paths[0], paths[1]]).shape == (3,)


@pytest.mark.parametrize("n", [3, 5])
def test_grey_arrays_where_the_model_was_fitted_on_them(tmp_path: Path, n: int) -> None:
    grey = X[..., 0]
    fitted = head().fit(grey, Y)
    fitted.save(tmp_path / "run")
    for model in (fitted, LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")):
        expected = model.predict_proba(grey[:n, ..., None])
        np.testing.assert_array_equal(model.predict_proba(grey[:n]), expected)
        np.testing.assert_array_equal(model.predict_proba(grey[0]), expected[:1])
    assert fitted.score(grey, Y) == fitted.score(grey[..., None], Y)


def test_floats_are_scored_as_the_bytes_they_were(model: LQFClassifier) -> None:
    expected, p = model.score(X, NAMES), model.predict_proba(X)
    for other in (X / 255, X.astype(np.float32), (X / 255).transpose(0, 3, 1, 2), torch.from_numpy(X / 255)):
        assert model.score(other, NAMES) == expected
        np.testing.assert_array_equal(model.predict_proba(other), p)
        np.testing.assert_array_equal(head().fit(other, NAMES).predict_proba(X), p)


def test_normalized_tensors_are_refused_without_that_word(model: LQFClassifier) -> None:
    x = torch.randn(4, 3, 8, 8)
    for call in (model.predict, lambda x: model.score(x, NAMES[:4]), lambda x: head().fit(x, NAMES[:4])):
        with pytest.raises(LQFError, match=r"pixels are 0 to 1 or 0 to 255.*tensors='normalized'"):
            call(x)


def test_the_word_is_saved_with_the_model(tmp_path: Path) -> None:
    x = torch.from_numpy((X / 255 - 0.5) / 0.2).permute(0, 3, 1, 2)
    fitted = head(tensors="normalized").fit(x, NAMES)
    fitted.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    assert loaded.tensors == "normalized"
    for model in (fitted, loaded):
        np.testing.assert_array_equal(model.predict_proba(x[0]), model.predict_proba(x)[:1])
        for wrong in (X, Image.fromarray(X[0]), list(X)):
            with pytest.raises(LQFError, match="tensors='normalized'"):
                model.predict(wrong)
        with pytest.raises(LQFError, match=r"fitted on tensors of shape \(3, 10, 10\)"):
            model.predict(x.permute(0, 2, 3, 1))


def test_the_word_may_be_said_after_the_fit(model: LQFClassifier, tmp_path: Path) -> None:
    """Normalised as the model does it, they give the same; views of pictures they have not."""
    preprocess = model.fitted_.preprocess
    mean, std = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (preprocess.mean, preprocess.std))
    cut = open_images(load_samples(X), preprocess).batch(range(len(X)))
    x = (cut.double() / 255 - mean) / std
    model.save(tmp_path / "run")
    other = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu").set_params(tensors="normalized")
    np.testing.assert_allclose(other.predict_proba(x), model.predict_proba(X), rtol=1e-9)
    with pytest.raises(LQFError, match="tensors='normalized'"):
        other.predict(X)


def test_a_model_of_before_there_was_the_word(tmp_path: Path) -> None:
    x, y = data()
    fitted = classifier(solver="head").fit(x, y)
    fitted.save(tmp_path / "run")
    file = tmp_path / "run" / "model.json"
    meta = json.loads(file.read_text())
    del meta["sha256"], meta["shape"], meta["settings"]["tensors"]
    file.write_text(json.dumps(meta | {"sha256": digest(meta)}))
    old = LQFClassifier.load(tmp_path / "run", backbone=network(), device="cpu")
    with pytest.raises(LQFError, match="tensors='normalized'"):
        old.predict(x)
    old.set_params(tensors="normalized")
    np.testing.assert_array_equal(old.predict_proba(x), fitted.predict_proba(x))
    effects = fitted.analyse(x, y).influence(x[:2]).effects
    torch.testing.assert_close(old.analyse(x, y).influence(x[:2]).effects, effects)


def test_vectors_need_the_word_too() -> None:
    x, y = data()
    with pytest.raises(LQFError, match="tensors='normalized'"):
        classifier(tensors="pictures").fit(x, y)
    fitted = classifier(solver="head").fit(x, y)
    assert fitted.predict(x[0]).shape == (1,)
    assert fitted.predict(x).shape == (len(x),)


def test_questions_take_what_predictions_take(tmp_path: Path) -> None:
    folder = photos(tmp_path / "train", classes=("red", "green"))
    fitted = head(size=32).fit(folder)
    one = np.asarray(Image.open(folder / "red" / "0.png"))
    expected = fitted.influence(folder / "red" / "0.png").effects
    for image in (one, one / 255, Image.fromarray(one), torch.from_numpy(one).permute(2, 0, 1)):
        torch.testing.assert_close(fitted.influence(image).effects, expected)
    assert fitted.influence(folder).labels.tolist() == [0] * 4 + [1] * 4  # the model's classes: green, red


class TestFoldersAsTheyAre:
    def test_what_is_left_out_is_said_and_refused_if_strict(self, tmp_path: Path, recorder: Recorder) -> None:
        folder = photos(tmp_path / "train")
        Image.new("RGB", (8, 8)).save(folder / "loose.png")
        (folder / "empty").mkdir()
        fitted = head(size=32).fit(folder, progress=recorder)
        assert fitted.classes_.tolist() == ["blue", "green"]
        assert [said for said in recorder.said if "left out" in said] == [
            f"`{folder}`: left out 1 image outside any class folder (`loose.png`)",
            f"`{folder}`: left out 1 class folder without an image (`empty`)",
        ]
        with pytest.raises(LQFError, match=r"1 image outside any class folder .* and 1 class folder without an image"):
            head(size=32, strict=True).fit(folder)

    def test_a_class_with_one_image(self, tmp_path: Path, recorder: Recorder) -> None:
        folder = photos(tmp_path / "train")
        for path in sorted((folder / "blue").iterdir())[1:]:
            path.unlink()
        head(size=32).fit(folder, progress=recorder)
        assert any("classes with one image" in said for said in recorder.said)
        with pytest.raises(LQFError, match="classes with one image"):
            head(size=32, strict=True).fit(folder)

    def test_unknown_classes_of_a_test_set(self, tmp_path: Path, recorder: Recorder) -> None:
        train, test = photos(tmp_path / "train"), photos(tmp_path / "test", 2, seed=1)
        fitted = head(size=32).fit(train)
        expected = fitted.score(test)
        (test / "red").mkdir()
        Image.new("RGB", (8, 8)).save(test / "red" / "0.png")
        assert fitted.score(test, progress=recorder) == expected
        assert any("1 image of classes the model does not know: `red`" in said for said in recorder.said)
        with pytest.raises(LQFError, match="classes the model does not know"):
            fitted.score(X, ["blue"] * 11 + ["red"])
        with pytest.raises(LQFError, match="classes the model does not know"):
            head(size=32, strict=True).fit(train).score(test)

    def test_a_folder_of_train_and_test(self, tmp_path: Path) -> None:
        for part in ("train", "test"):
            photos(tmp_path / "all" / part)
        with pytest.raises(LQFError, match=r"lqf fit .*all/train -o RUN.*lqf evaluate RUN .*all/test"):
            head().fit(tmp_path / "all")


@pytest.mark.parametrize("labels", [["a;b", "a", "b"] * 4, [["a", "b"]] * 12, np.linspace(0.1, 0.9, 12)])
def test_several_labels_and_amounts_are_no_classes(labels: Any) -> None:
    with pytest.raises(LQFError, match="one label an image only"):
        head().fit(X, labels)


def test_one_hot_labels() -> None:
    with pytest.raises(LQFError, match="one label an image only"):
        head().fit(X, np.eye(3)[Y])
