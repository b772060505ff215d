"""`LQFClassifier`: scikit-learn's conventions, labels, probabilities, bad input, folders (mathematics: `fitting`)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.utils.validation import check_is_fitted
from torch import nn

import small_network
from finetuned_models import short
from fits import FIXED, classifier, convnet, data, network, photos, pictures
from lqf import LQFClassifier
from lqf.data import load_samples
from lqf.errors import LQFError

X, Y = data(18)
NEW = data(8, seed=7)[0]
binary_or_multi = pytest.mark.parametrize("n_classes", [2, 3])

# --- scikit-learn's conventions ---------------------------------------------------------------------------------------


def test_fit_returns_self_and_leaves_attributes_with_an_underscore() -> None:
    model = classifier(**FIXED)
    before = set(vars(model))
    assert model.fit(X, Y) is model
    added = set(vars(model)) - before
    assert added == {"fitted_", "report_", "classes_", "analysis_"}
    assert model.report_["n"] == 18


def test_parameters_can_be_read_set_and_cloned() -> None:
    model = classifier(head="random", alpha=3.0)
    params = model.get_params()
    assert LQFClassifier(**params).get_params() == params
    assert (params["head"], params["alpha"], params["size"]) == ("random", 3.0, None)
    assert model.set_params(alpha=5.0, head="probe") is model
    assert (model.alpha, model.head) == (5.0, "probe")
    copy = clone(model.fit(X, Y))
    assert not hasattr(copy, "fitted_")
    assert {k: v for k, v in copy.get_params().items() if k != "backbone"} == {
        k: v for k, v in model.get_params().items() if k != "backbone"
    }
    np.testing.assert_array_equal(copy.fit(X, Y).decision_function(NEW), model.decision_function(NEW))


def test_an_unknown_parameter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LQFError, match=r"no parameter `lr`; it has backbone, effort, time_limit, .*, seed"):
        LQFClassifier().set_params(lr=0.1)
    with pytest.raises(TypeError, match="lr"):
        LQFClassifier(lr=0.1)  # type: ignore[call-arg]


def test_repr_shows_what_was_changed() -> None:
    assert repr(LQFClassifier()) == "LQFClassifier()"
    assert repr(LQFClassifier("mobilenet_v2", size=32)) == "LQFClassifier(backbone='mobilenet_v2', size=32)"


def test_scikit_learn_takes_it_for_a_classifier() -> None:
    model = classifier(**FIXED)
    assert is_classifier(model)
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(model)
    check_is_fitted(model.fit(X, Y))


def test_cross_validation_and_grid_search_work() -> None:
    x, y = data(24, signal=3.0)
    scores = cross_val_score(classifier(solver="head"), x, np.array(["a", "b", "c"])[y], cv=3)
    assert scores.shape == (3,)
    assert scores.mean() > 0.7
    p = cross_val_predict(classifier(solver="head"), x, y, cv=2, method="predict_proba")
    assert p.shape == (24, 3)
    search = GridSearchCV(classifier(solver="head"), {"weight_decay": [1e-3, 1e4]}, cv=2).fit(x, y)
    assert search.best_params_ == {"weight_decay": 1e-3}


def test_before_fit_everything_says_so(tmp_path: Path) -> None:
    model = classifier()
    uses = (
        lambda: model.predict(X),
        lambda: model.predict_proba(X),
        lambda: model.decision_function(X),
        lambda: model.score(X, Y),
        lambda: model.score(tmp_path),
        lambda: model.leave_one_out(),
        lambda: model.save(tmp_path / "run"),
    )
    for use in uses:
        with pytest.raises(LQFError, match="not fitted yet; call `fit`"):
            use()


# --- labels, outputs, probabilities -----------------------------------------------------------------------------------

LABELS: dict[str, tuple[Any, list[Any]]] = {
    "int": (np.array([10, 2, -3])[Y], [-3, 2, 10]),
    "str": (np.array(["rose", "Aster", "tulip"])[Y], ["Aster", "rose", "tulip"]),
    "numbers as text": (np.array(["07", "7", "1"])[Y], ["07", "1", "7"]),
    "odd digits": (np.array(["²", "--1", "1"])[Y], ["--1", "1", "²"]),
    "tensor": (torch.tensor(Y), [0, 1, 2]),
    "list": ([f"c{y}" for y in Y], ["c0", "c1", "c2"]),
}


@pytest.mark.parametrize("kind", LABELS)
def test_classes_are_the_sorted_labels_and_predictions_are_labels(kind: str) -> None:
    y, classes = LABELS[kind]
    model = classifier(solver="head", weight_decay=1e-6).fit(X, y)
    assert model.classes_.tolist() == classes
    predicted = model.predict(X)
    assert set(predicted.tolist()) <= set(classes)
    assert model.score(X, y) == np.mean(predicted == np.asarray(y)) > 0.6


@binary_or_multi
def test_shapes_of_outputs_and_probabilities(n_classes: int) -> None:
    x, y = data(18, n_classes)
    model = classifier(**FIXED).fit(x, y)
    f, p = model.decision_function(NEW), model.predict_proba(NEW)
    assert f.shape == ((8,) if n_classes == 2 else (8, 3))
    assert p.shape == (8, n_classes)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    if n_classes == 2:
        np.testing.assert_array_equal(f > 0, model.predict(NEW) == 1)
        np.testing.assert_array_equal(np.argsort(f), np.argsort(p[:, 1]))
    else:
        np.testing.assert_array_equal(np.argsort(f, 1), np.argsort(p, 1))
    np.testing.assert_array_equal(p.argmax(1), model.predict(NEW))


def test_scores_of_opened_images_are_all_of_it_in_one_pass() -> None:
    for n_classes in (2, 3):
        x, y = data(18, n_classes)
        model = classifier(solver="head").fit(x, y)
        index, scores, p = model.scores(model.open(load_samples(NEW, tensors="normalized")))
        assert scores.shape == p.shape == (8, n_classes)
        np.testing.assert_array_equal(model.classes_[index], model.predict(NEW))
        np.testing.assert_array_equal(scores.argmax(1), index)
        np.testing.assert_array_equal(p, model.predict_proba(NEW))


def test_probabilities_are_calibrated_on_leave_one_out() -> None:
    x, y = data(60, signal=0.4)
    model = classifier(solver="head").fit(x, y)
    loo, p = model.leave_one_out(), model.predict_proba(data(600, seed=3, signal=0.4)[0])
    assert model.fitted_.beta == loo.temperature()
    right = model.predict(data(600, seed=3, signal=0.4)[0]) == data(600)[1]
    assert abs(p.max(1).mean() - right.mean()) < 0.1  # as sure as it is right


def test_score_is_the_weighted_accuracy() -> None:
    model = classifier(solver="head").fit(X, Y)
    x, y = data(40, seed=4, signal=0.3)
    right = model.predict(x) == y
    assert 0 < right.mean() < 1
    assert model.score(x, y) == pytest.approx(right.mean())
    w = np.random.default_rng(0).random(40)
    assert model.score(x, y, sample_weight=w) == pytest.approx(np.average(right, weights=w))
    assert model.score(x, y, sample_weight=right) == 1
    with pytest.raises(LQFError, match="all sample weights are zero"):
        model.score(x, y, sample_weight=np.zeros(40))
    with pytest.raises(LQFError, match="classes the model does not know: `9`"):
        model.score(x[:2], [0, 9])


def test_the_users_network_and_random_numbers_are_left_alone() -> None:
    net = network().float().train()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    state = torch.get_rng_state()
    classifier(backbone=net, tensors="normalized", **FIXED).fit(X, Y).predict(NEW)
    assert net.training
    assert all(torch.equal(v, before[k]) and v.dtype == torch.float32 for k, v in net.state_dict().items())
    assert all(p.requires_grad for p in net.parameters())
    assert torch.equal(torch.get_rng_state(), state)


# --- bad input --------------------------------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "solver": ({"solver": "newton"}, "solver is 'newton'; choose one of auto, head, dense"),
    "weight decay": ({"weight_decay": -1}, "weight_decay is -1; give `auto` or a positive number"),
    "views of tensors": ({"views": "flip"}, "views 'flip' need pictures"),
    "views": ({"views": "seven"}, "views is 'seven'; choose auto, none, flip, five, ten, resized, or crops8"),
    "size": ({"size": 0}, "size is 0; give a number of pixels"),
    "device": ({"device": "abacus"}, "no device `abacus`"),
    "stage": ({"linearize": "third"}, "no stage `third`; choose one of first, second"),
    "backbone": ({"backbone": "vgg"}, "no backbone `vgg`"),
    "no linear layer": ({"backbone": nn.Sequential(nn.Flatten(), nn.Tanh())}, "has no nn.Linear to take off"),
    "no body": ({"backbone": nn.Linear(12, 2).double()}, "no weights below its head"),
    "augmentation": ({"augment": "crop"}, "needs solver `sgd` or `adam`"),
    "augmented tensors": ({"augment": "crop", "solver": "sgd"}, "give pictures"),
    "learning rate": ({"solver": "sgd", "learning_rate": 1e9}, "sgd diverged with learning rate"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_setting_is_a_sentence(name: str) -> None:
    params, words = BAD[name]
    x = X.reshape(18, 12) if name == "no body" else X
    with pytest.raises(LQFError) as error:
        classifier(**{"tensors": "normalized", **params}).fit(x, Y)
    assert words in str(error.value)


def test_bad_data_is_a_sentence() -> None:
    for x, y, words in (
        (X, Y[:-1], "18 images but 17 labels"),
        (X, np.zeros(18), "one class"),
        (np.where(X > 2, np.nan, X), Y, "NaN"),
        (X, None, "no label"),
    ):
        with pytest.raises(LQFError) as error:
            classifier().fit(x, y)
        assert words in str(error.value)


def test_a_failed_fit_keeps_the_old_model() -> None:
    model = classifier(**FIXED).fit(X, Y)
    before = model.decision_function(NEW)
    with pytest.raises(LQFError):
        model.set_params(solver="newton").fit(X, Y)
    np.testing.assert_array_equal(model.decision_function(NEW), before)


AFTERWARDS: dict[str, Any] = {
    "form": "w0",
    "alpha": 3.0,
    "head": "random",
    "dtype": "float32",
    "linearize": "second",
    "views": "flip",
    "leaky": False,
    "size": 7,
    "seed": 9,
    "weight_decay": 5.0,
}


def test_a_fitted_model_owns_its_settings(tmp_path: Path) -> None:
    model = classifier(**FIXED).fit(X, Y)
    given, outputs = model.get_params(), model.decision_function(NEW)
    effects, left_out = model.analyse(X, Y).influence(NEW).effects, model.leave_one_out().outputs
    model.set_params(**AFTERWARDS)
    np.testing.assert_array_equal(model.decision_function(NEW), outputs)
    analysis = model.analyse(X, Y)
    assert torch.equal(analysis.influence(NEW).effects, effects)
    torch.testing.assert_close(analysis.leave_one_out().outputs, left_out, rtol=1e-9, atol=1e-9)
    model.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=network(), device="cpu")
    kept = {k: v for k, v in loaded.get_params().items() if k != "backbone"}
    assert kept == {k: v for k, v in given.items() if k != "backbone"}
    np.testing.assert_array_equal(loaded.decision_function(NEW), outputs)
    assert torch.equal(loaded.analyse(X, Y).influence(NEW).effects, effects)
    refitted = model.set_params(views="none").fit(X, Y)  # now they count
    assert refitted.report_["form"] == "w0"
    assert not np.allclose(refitted.decision_function(NEW), outputs)


def test_crops_are_as_large_and_as_long_as_asked_for_and_stay_with_the_model(tmp_path: Path) -> None:
    (x, y), new = pictures(12), pictures(5, seed=9)[0]
    given = {"size": 8, "views": "crops4", "solver": "head", "weight_decay": 0.1}
    plain = classifier(backbone=convnet(), **given).fit(x, y)
    model = classifier(backbone=convnet(), **given, crop_area=0.9, crop_ratio=1).fit(x, y)
    seen = model.fitted_.preprocess
    assert (seen.views, seen.crop_area, seen.crop_ratio) == ("crops4", 0.9, 1.0)
    assert not np.allclose(model.decision_function(new), plain.decision_function(new))
    model.save(tmp_path / "run")
    loaded = LQFClassifier.load(tmp_path / "run", backbone=convnet(), device="cpu")
    assert (loaded.crop_area, loaded.crop_ratio, loaded.fitted_.preprocess) == (0.9, 1, seen)
    np.testing.assert_array_equal(loaded.decision_function(new), model.decision_function(new))


@pytest.mark.parametrize("names", [("07", "1", "7"), ("-1", "0", "3"), ("b", "a", "1")])
def test_class_names_mean_the_same_in_predictions_and_in_analysis(names: tuple[str, ...]) -> None:
    y = np.array(names)[Y]
    model = classifier(**FIXED).fit(X, y)
    assert model.score(X, y) > 0.6
    queries = model.analyse(X).queries(X, y)
    assert [model.fitted_.classes[k] for k in queries.labels.tolist()] == y.tolist()
    assert set(map(str, model.predict(NEW))) <= set(names)


# --- a folder of pictures ---------------------------------------------------------------------------------------------

MOBILE: dict[str, Any] = {"backbone": "mobilenet_v2", "weights": "random", "size": 32, "device": "cpu"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    photos(root / "train")
    photos(root / "test", 3, seed=1)
    return root


@pytest.mark.parametrize(
    "params",
    [{"solver": "head"}, {"solver": "dense", "linearize": "final"}, {"solver": "pcg", "linearize": "final"}],
)
def test_a_folder_of_pictures(folder: Path, params: dict[str, Any]) -> None:
    model = LQFClassifier(**MOBILE, **params).fit(folder / "train")
    assert model.classes_.tolist() == ["blue", "green"]
    assert model.score(folder / "test") == 1
    assert model.predict(folder / "test").tolist() == ["blue"] * 3 + ["green"] * 3
    assert model.predict(folder / "test" / "green" / "0.png").tolist() == ["green"]
    assert model.predict([folder / "test" / "green" / "0.png"]).tolist() == ["green"]
    assert model.decision_function(str(folder / "test")).shape == (6,)
    assert model.fitted_.train.ids[0] == "blue/0.png"
    assert model.report_["n"] == 8
    assert model.leave_one_out().error <= 0.5


@pytest.fixture
def small() -> Iterator[dict[str, Any]]:
    """A network of MobileNetV2's kinds of blocks, a thousandth of its work."""
    small_network.register()
    yield {**MOBILE, "backbone": small_network.NAME}
    small_network.forget()


def test_the_default_tries_all_of_the_network(folder: Path, small: dict[str, Any]) -> None:
    with short(6):
        model = LQFClassifier(**small, limit_per_class=3, time_limit="10m").fit(str(folder / "train"))
    rungs = {r["name"]: r for r in model.report_["rungs"]}
    assert model.report_["n"] == 6
    assert rungs["LQF"]["seconds"] is not None
    assert rungs["fine-tuned"]["seconds"] is not None
    assert model.report_["converged"]
    assert model.score(folder / "test") >= 0.5


def test_a_solver_by_name_solves_the_whole_network(folder: Path) -> None:
    fitted = LQFClassifier(**MOBILE, limit_per_class=3, solver="dense").fit(str(folder / "train"))
    named = fitted.report_
    assert (named["solver"], named["point"]) == ("dense", "crossfit")
    assert named["unknowns"] > 2_000_000


def test_augmented_sgd_on_pictures(folder: Path) -> None:
    params = {"solver": "sgd", "augment": "crop", "views": "none", "linearize": "final", "epochs": 2, "minibatch": 4}
    model, plain = (LQFClassifier(**MOBILE, **params | a).fit(folder / "train") for a in ({}, {"augment": "none"}))
    assert model.report_["solver"] == "sgd"
    outputs = model.decision_function(folder / "test")
    assert np.isfinite(outputs).all()
    assert not np.allclose(outputs, plain.decision_function(folder / "test"))  # crops were drawn


def test_damaged_pictures_are_skipped_in_training_and_refused_in_prediction(folder: Path, tmp_path: Path) -> None:
    train = photos(tmp_path / "train")
    (train / "blue" / "0.png").write_bytes((train / "blue" / "0.png").read_bytes()[:100])
    model = LQFClassifier(**MOBILE, solver="head").fit(train)
    assert [s for s, _ in model.report_["skipped"]] == ["blue/0.png"]
    assert model.report_["n"] == 7
    with pytest.raises(LQFError, match=r"blue/0\.png"):
        LQFClassifier(**MOBILE, solver="head", strict=True).fit(train)
    with pytest.raises(LQFError, match=r"0\.png"):
        model.predict(train)
