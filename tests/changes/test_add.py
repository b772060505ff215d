"""Adding: new classes, sources of several kinds, and what is not computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dense import optimum
from fits import brute_outputs, classifier, convnet, data, photos
from lqf import LQFClassifier, load
from lqf.data import load_samples, open_images
from lqf.errors import LQFError
from lqf.fitting import Context, HeadFit, TrainingSet
from lqf.fitting.encoder import Encoder
from lqf.fitting.pose import outlined
from lqf.linear.inputs import Inputs
from recorder import Recorder

X, Y = data(30, 4)
THREE = Y < 3
NEW = torch.tensor(data(5, 3, seed=3)[0])


@pytest.mark.parametrize("solver", ["dense", "pcg"])
@pytest.mark.parametrize("old", [(0, 1), (0, 1, 3)])
def test_with_new_classes_it_is_the_fit_on_everything_at_the_same_strengths(solver: str, old: tuple[int, ...]) -> None:
    first = np.isin(Y, old)
    settings = {"loo": "none", "tol": 1e-6, "max_passes": 200} if solver == "pcg" else {}
    model = classifier(solver=solver, **settings).fit(X[first], Y[first])
    ridge, mu = model.fitted_.report.ridge, model.fitted_.report.point_ridge
    addition = model.add(X[~first], Y[~first], train=X[first])
    assert addition.classes == tuple(str(k) for k in range(4) if k not in old)
    assert model.classes_.tolist() == [0, 1, 2, 3]
    fitted = model.fitted_
    images = open_images(load_samples(*_in_order(first), tensors="normalized"), fitted.preprocess)
    training = TrainingSet(images, fitted.preprocess, Context(fitted.settings, torch.device("cpu")))
    problem = outlined(HeadFit.at(Encoder(training, fitted.backbone), "avg", mu)).quadratic.with_ridge(ridge)
    expected = brute_outputs(problem, optimum(problem), NEW)
    gap = np.abs(model.decision_function(NEW.numpy()) - expected.numpy()).max() / float(expected.abs().max())
    assert gap < (1e-3 if solver == "pcg" else 1e-8)


def _in_order(first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([X[first], X[~first]]), np.concatenate([Y[first], Y[~first]])


def test_one_sample_after_the_other_is_the_protocol_of_on_line_learning() -> None:
    model, twice = classifier(solver="head"), classifier(solver="head")
    model.partial_fit(X[:12], Y[:12])
    for i in range(12, 18):
        model.partial_fit(X[i : i + 1], Y[i : i + 1])
    twice.partial_fit(X[:12], Y[:12]).partial_fit(X[12:18], Y[12:18])
    assert model.fitted_.train.ids == tuple(map(str, range(18)))
    assert np.allclose(model.decision_function(NEW.numpy()), twice.decision_function(NEW.numpy()), atol=1e-9)
    assert model.fitted_.report.changes[0]["what"] == "added"
    assert len(model.fitted_.report.changes) == 6


def test_of_the_old_images_no_feature_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = classifier(solver="head").fit(X[THREE], Y[THREE])

    def refuse(*_: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(Encoder, "features", refuse)
    model.add(X[~THREE][:3], np.arange(3), train=X[THREE])
    assert model.report_["n"] == int(THREE.sum()) + 3


def test_folders_of_before_and_after_are_opened_again(tmp_path: Path) -> None:
    photos(tmp_path / "train", 4)
    photos(tmp_path / "more", 3, seed=5, classes=("blue", "red"))
    for image in (tmp_path / "more").glob("*/*.png"):
        image.rename(image.with_stem(f"more{image.stem}"))
    given: dict[str, Any] = {"backbone": convnet(), "size": 32, "pooling": "avg", "views": "flip"}
    model = classifier(**given).fit(tmp_path / "train")
    model.add(tmp_path / "more")
    model.save(tmp_path / "run")
    again = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    table = again.fitted_.train
    assert (table.source, table.added) == (str(tmp_path / "train"), (str(tmp_path / "more"),))
    assert table.origins.tolist() == [0] * 8 + [1] * 6
    assert again.fitted_.classes == ("blue", "green", "red")
    assert np.allclose(again.analyse().leave_one_out().outputs, model.leave_one_out().outputs)
    again.forget(["red/more0.png"])
    assert len(again.analyse().ids) == 13
    with pytest.raises(LQFError, match="already in the training set"):
        again.add(tmp_path / "train")
    (tmp_path / "more" / "blue" / "more0.png").rename(tmp_path / "more" / "blue" / "more9.png")
    with pytest.raises(LQFError, match="cannot be found"):
        LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu").analyse()


@pytest.mark.parametrize("change", ["add", "forget"])
def test_what_is_not_linearised_is_computed_once_for_all_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    old, new = photos(tmp_path / "old", 6), photos(tmp_path / "new", 2, seed=3)
    for image in new.glob("*/*.png"):
        image.rename(image.with_stem(f"new{image.stem}"))
    settings = {"linearize": "deep", "views": "none", "loo": "none", "tol": 1e-4}
    classifier(backbone=convnet(), size=36, solver="pcg", **settings).fit(old).save(tmp_path / "run")
    model = load(tmp_path / "run", backbone=convnet(), verbose=0)
    through = []

    def counted(inputs: Inputs, x: torch.Tensor) -> torch.Tensor:
        through.append(len(x))
        return prefix(inputs, x)

    prefix = Inputs._through_prefix
    monkeypatch.setattr(Inputs, "_through_prefix", counted)
    if change == "add":
        model.add(new)
    else:
        model.forget(["blue/0.png"])
    n = model.report_["n"]
    assert model.report_["passes"] > 2
    assert sum(through) < 2 * n  # once for the products, once for the features of what is new, and a few examples


def test_weights_of_classes_hold_for_new_samples_and_a_new_class_counts_alike() -> None:
    first = Y < 2
    model = classifier(solver="head", class_weight="balanced").fit(X[first][:-1], Y[first][:-1])
    known = model.fitted_.report.class_weights
    model.add(X[~first], Y[~first] % 3, sample_weight=np.full((~first).sum(), 2.0), train=X[first][:-1])
    table = model.fitted_.train
    totals = np.bincount(table.labels[: first.sum() - 1], table.weights[: first.sum() - 1])
    new = table.labels == 2
    assert table.weights[new].sum() == pytest.approx(totals.mean(), rel=0.5)
    old = (table.labels == 0) & (np.arange(len(table.ids)) >= first.sum() - 1)
    assert table.weights[old] == pytest.approx(2 * known["0"])


def test_pcg_says_how_many_products_it_saved() -> None:
    settings = {"solver": "pcg", "loo": "none", "tol": 1e-3, "max_passes": 200}
    model = classifier(**settings).fit(X[:27], Y[:27])
    passes, recorder = model.report_["passes"], Recorder()
    addition = model.add(X[27:], Y[27:], train=X[:27], progress=recorder)
    assert addition.saved == passes - model.report_["passes"]
    assert "fewer than the fit took" in addition.sentence


BAD: dict[str, tuple[Any, Any, str]] = {
    "no labels": (X[:2], None, "label"),
    "another shape": (X[:3, :2], Y[:3], "shape"),
    "too few labels": (X[:3], Y[:2], "3 images but 2 labels"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_added_is_said_and_changes_nothing(name: str) -> None:
    model = classifier(solver="head").fit(X, Y)
    before, (x, y, sentence) = model.fitted_, BAD[name]
    with pytest.raises(LQFError, match=sentence):
        model.add(x, y, train=X)
    assert model.fitted_ is before
