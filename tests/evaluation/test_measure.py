"""Figures of an evaluation: those of scikit-learn, and none where they are not defined."""

import json

import numpy as np
import pytest

from evaluation.answers import answers
from lqf.evaluation.figures import FIGURES
from lqf.evaluation.intervals import DRAWS, wilson
from lqf.evaluation.measure import measure
from lqf.evaluation.ranking import area
from lqf.evaluation.reliability import calibration_error, reliability

metrics = pytest.importorskip("sklearn.metrics")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_figures_are_those_of_scikit_learn(n_classes, weighted):
    given = answers(160, n_classes)
    y, guess, p = given["labels"], given["predicted"], given["probabilities"]
    w = np.random.default_rng(1).uniform(0.2, 3, len(y)) if weighted else given["weights"]
    found = measure(**given | {"weights": w})
    assert found.accuracy.value == pytest.approx(metrics.accuracy_score(y, guess, sample_weight=w))
    assert found.error.value == pytest.approx(1 - found.accuracy.value)
    assert found.balanced_accuracy.value == pytest.approx(metrics.balanced_accuracy_score(y, guess, sample_weight=w))
    f1 = metrics.f1_score(y, guess, average=None, sample_weight=w)
    assert [of.f1.value for of in found.per_class] == pytest.approx(f1)
    assert found.macro_f1.value == pytest.approx(f1.mean())
    recall = metrics.recall_score(y, guess, average=None, sample_weight=w)
    assert [of.error.value for of in found.per_class] == pytest.approx(1 - recall)
    scores = p[:, 1] if n_classes == 2 else p
    assert found.auc.value == pytest.approx(metrics.roc_auc_score(y, scores, multi_class="ovr", sample_weight=w))
    assert found.log_loss.value == pytest.approx(metrics.log_loss(y, p, sample_weight=w))
    assert found.confusion.tolist() == metrics.confusion_matrix(y, guess).tolist()
    for name in FIGURES:
        figure = getattr(found, name)
        assert figure.low <= figure.value <= figure.high
        assert figure.low < figure.high


def test_the_calibration_error_is_that_of_ten_bins_of_equally_many_images():
    given = answers(400, 3, sharp=5.0)
    found = measure(**given)
    confidence, right = given["probabilities"].max(1), given["predicted"] == given["labels"]
    parts = np.array_split(confidence.argsort(kind="stable"), 10)
    by_hand = np.mean([abs(confidence[i].mean() - right[i].mean()) for i in parts])
    assert found.calibration_error.value == pytest.approx(by_hand)
    assert found.calibration_error.value == pytest.approx(calibration_error(reliability(confidence, right)))
    assert found.bins == 10
    assert measure(**answers(60, 3)).bins == 2


def test_weights_of_a_calibration_curve_are_copies():
    given = answers(100, 2)
    confidence, right = given["probabilities"].max(1), given["predicted"] == given["labels"]
    (one,) = reliability(confidence, right, np.where(right, 2.0, 1.0), most_bins=1)
    twice = np.repeat(np.arange(100), np.where(right, 2, 1))
    assert one["right"] == pytest.approx(right[twice].mean())
    assert one["confidence"] == pytest.approx(confidence[twice].mean())


@pytest.mark.parametrize("name", [n for n in FIGURES if n != "calibration_error"])
def test_a_duplicate_counts_like_weight_two(name):
    given = answers(80, 3)
    twice = np.repeat(np.arange(80), np.where(np.arange(80) % 4, 1, 2))
    weights = np.where(np.arange(80) % 4, 1.0, 2.0)
    copied = {k: v if k == "classes" else v[twice] for k, v in given.items()}
    weighted = getattr(measure(**given | {"weights": weights}), name)
    assert getattr(measure(**copied), name).value == pytest.approx(weighted.value)


def test_an_image_of_weight_zero_is_counted_and_not_measured():
    given = answers(90, 3)
    weights = np.where(np.arange(90) < 60, 1.0, 0.0)
    part = {k: v if k == "classes" else v[:60] for k, v in given.items()}
    found, alone = measure(**given | {"weights": weights}), measure(**part)
    assert found.n == 90
    for name in FIGURES:
        assert getattr(found, name) == getattr(alone, name)
    nothing = measure(**given | {"weights": np.zeros(90)})
    assert all(getattr(nothing, name).value is None for name in FIGURES)
    assert nothing.n == 90


def test_classes_that_do_not_occur_are_undefined_and_not_counted():
    given = answers(100, 4)
    some = given["labels"] < 3
    part = {k: v if k == "classes" else v[some] for k, v in given.items()}
    found = measure(**part)
    y, guess = part["labels"], part["predicted"]
    assert [of.name for of in found.per_class] == ["class 0", "class 1", "class 2"]
    assert found.balanced_accuracy.value == pytest.approx(
        metrics.recall_score(y, guess, labels=[0, 1, 2], average="macro")
    )
    assert found.macro_f1.value == pytest.approx(metrics.f1_score(y, guess, labels=[0, 1, 2], average="macro"))
    assert found.confusion.shape == (4, 4)
    p = part["probabilities"]
    of = [metrics.roc_auc_score(y == k, p[:, k]) for k in range(3)]
    assert found.auc.value == pytest.approx(np.mean(of))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_class_alone_has_no_auc_and_no_nan_reaches_json(n_classes):
    given = answers(30, n_classes)
    labels = np.zeros(30, int)
    found = measure(**given | {"labels": labels})
    assert found.auc.value is found.auc.low is None
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["auc"] is None
    assert json.loads(text)["intervals"]["auc"] is None


def test_no_mistake_is_no_certainty():
    given = answers(40, 2, skill=30.0)
    found = measure(**given)
    assert (found.error.value, found.error.low) == (0, 0)
    assert found.error.high == pytest.approx(1 - wilson(1.0, 40)[0]) == pytest.approx(0.0876, abs=1e-4)
    assert 0.9 < found.balanced_accuracy.low < found.balanced_accuracy.high == 1
    assert found.macro_f1.interval is found.auc.interval is None  # all draws agree, and that says nothing
    assert found.macro_f1.value == found.auc.value == 1
    assert found.log_loss.value < 1e-10


def test_a_probability_that_rounds_to_zero_is_not_an_infinite_loss():
    given = answers(20, 2)
    p = np.where(np.arange(2) == given["labels"][:, None], 0.0, 1.0)
    found = measure(**given | {"probabilities": p, "predicted": 1 - given["labels"]})
    assert found.log_loss.value == pytest.approx(metrics.log_loss(given["labels"], p))


def test_images_of_a_group_are_resampled_together():
    given = answers(60, 2)
    ten = np.repeat(np.arange(60), 10)
    copied = {k: v if k == "classes" else v[ten] for k, v in given.items()}
    alone, copies = measure(**given), measure(**copied)
    grouped = measure(**copied, groups=tuple(f"g{i}" for i in ten))
    for name in FIGURES:
        if name == "calibration_error":  # its bins are other ones
            continue
        width = [of.high - of.low for of in (getattr(e, name) for e in (alone, copies, grouped))]
        assert width[2] == pytest.approx(width[0], rel=0.1), name
        assert width[1] < 0.5 * width[0], name


def test_the_same_data_have_the_same_intervals():
    assert measure(**answers(50, 3)).to_dict() == measure(**answers(50, 3)).to_dict()


def test_an_evaluation_as_json_values():
    given = answers(50, 3)
    result = measure(**given).to_dict()
    matrix = np.array(result["confusion_matrix"])
    assert matrix.shape == (3, 3)
    assert result["classes"] == list(given["classes"])
    assert result["n"] == matrix.sum() == 50
    assert result["error"] == pytest.approx(1 - np.trace(matrix) / 50)
    assert result["mean_class_error"] == pytest.approx(1 - result["balanced_accuracy"])
    assert result["intervals"].keys() == set(FIGURES)
    assert sum(pair["n"] for pair in result["confusions"]) == 50 - np.trace(matrix)
    for k, name in enumerate(given["classes"]):
        assert result["per_class"][name].keys() == {"n", "error", "error_interval", "f1", "f1_interval"}
        assert result["per_class"][name]["n"] == matrix[k].sum()
    assert DRAWS == 1000


def test_the_area_is_the_share_of_pairs_in_the_right_order():
    rng = np.random.default_rng(0)
    low, high = rng.integers(5, size=30), rng.integers(2, 7, size=20)
    pairs = (high[:, None] > low) + 0.5 * (high[:, None] == low)
    assert area(low, high) == pytest.approx(pairs.mean(), abs=1e-12)
