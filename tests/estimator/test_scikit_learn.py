"""scikit-learn's own checks of an estimator, on rows of numbers and a network that takes them."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_html_repr
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks
from torch import Tensor, nn

from fits import FIXED, classifier, data
from lqf import LQFClassifier

X, Y = data(18)
NEW = data(8, seed=7)[0]


class Rows(nn.Module):
    """Rows of any length -> 2 outputs; the network sees their first 12 numbers."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.first = nn.Linear(12, 6)
            self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.pad(x.flatten(1), (0, 12))[:, :12]
        return self.head(self.first(x).tanh())


class OnRows(LQFClassifier):
    """It says that it takes a table, without which scikit-learn checks next to nothing."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


WHOLE = "a table of whole numbers, of text or of nested lists is no picture and no tensor for a network"
COLUMNS = "images have no columns that could be counted: how many numbers there are is the network's business"
WORDS = "it is refused, in a sentence of ours instead of scikit-learn's"
DOES_NOT_APPLY = {
    "check_fit_score_takes_y": "a fit does not keep its arrays: partial_fit after it wants them again, as train=",
    "check_estimators_overwrite_params": "joblib's hash of a network changes when the network is copied",
    "check_n_features_in_after_fitting": COLUMNS,
    "check_n_features_in": COLUMNS,
    "check_estimators_empty_data_messages": COLUMNS,
    "check_fit2d_predict1d": "one row of numbers is one sample of a network that takes single numbers",
    "check_estimators_dtypes": WHOLE,
    "check_sample_weights_pandas_series": WHOLE,
    "check_sample_weights_not_an_array": WHOLE,
    "check_sample_weights_shape": WHOLE,
    "check_dtype_object": WHOLE,
    "check_classifier_data_not_an_array": WHOLE,
    "check_transformer_data_not_an_array": WHOLE,
    "check_classifiers_train": WHOLE,
    "check_sample_weight_equivalence_on_dense_data": "outputs are equal (tested below); probabilities are "
    "calibrated by leave-one-out, where a copy speaks for the sample that is left out",
    "check_all_zero_sample_weights_error": WORDS,
    "check_complex_data": WORDS,
    "check_estimator_sparse_tag": WORDS,
    "check_estimator_sparse_array": WORDS,
    "check_estimator_sparse_matrix": WORDS,
    "check_classifiers_regression_target": WORDS,
    "check_supervised_y_2d": "labels in a column are refused: a row of several labels would look the same",
}


def on_rows() -> OnRows:
    return OnRows(
        Rows().double(),
        tensors="normalized",
        solver="head",
        weight_decay=1e-3,
        device="cpu",
        dtype="float64",
        verbose=0,
    )


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([on_rows()], expected_failed_checks=lambda _: DOES_NOT_APPLY)
def test_scikit_learn_finds_nothing_to_complain_about(estimator: Any, check: Any) -> None:
    check(estimator)


def test_every_reason_is_for_a_check_there_is() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = {getattr(check, "func", check).__name__ for _, check in estimator_checks_generator(on_rows())}
    assert set(DOES_NOT_APPLY) <= names
    assert len(names - set(DOES_NOT_APPLY)) > 30


def test_weights_are_copies() -> None:
    r = np.random.default_rng(0)
    x, y, n = r.normal(size=(15, 10)), np.arange(15) % 3, r.integers(0, 5, 15)
    weighted, copied = on_rows().fit(x, y, sample_weight=n), on_rows().fit(x.repeat(n, 0), y.repeat(n))
    np.testing.assert_allclose(weighted.decision_function(x), copied.decision_function(x), atol=1e-9)


def test_features_go_into_another_classifier() -> None:
    model = classifier(**FIXED).fit(X, Y)
    features = model.transform(NEW)
    assert features.shape == (8, 5)
    assert model.get_feature_names_out().tolist() == [f"lqfclassifier{k}" for k in range(5)]
    inner = model.backbone
    with torch.no_grad():
        seen = inner[:-1](torch.tensor(NEW)).numpy()  # type: ignore[index, operator]
    assert features.shape == seen.shape
    pipe = make_pipeline(classifier(solver="head", leaky=False), LogisticRegression()).fit(X, Y)
    np.testing.assert_allclose(pipe[0].transform(NEW), seen, atol=1e-12)
    assert (pipe.predict(X) == Y).mean() > 0.6


def test_it_stands_in_scikit_learns_pictures_of_pipelines() -> None:
    page = estimator_html_repr(make_pipeline(classifier(solver="head"), LogisticRegression()))
    assert "LQFClassifier" in page
    copy = clone(classifier(solver="head", verbose=0))
    assert (copy.solver, copy.verbose) == ("head", 0)
