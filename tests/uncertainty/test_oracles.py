"""Conformal sets beside those of MAPIE and crepes: the same scores give the same sets."""

from typing import Any

import numpy as np
import pytest
import torch

from fits import classifier, data
from lqf.analysis import Units
from lqf.evaluation.calibration import probabilities
from lqf.uncertainty.conformal import p_values, voices


def scored(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (n, 4) and labels that are drawn from them."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(4, 0.6), n)
    return p, np.array([rng.choice(4, p=row) for row in p])


def by_scores(p: np.ndarray, y: np.ndarray, test: np.ndarray, *, by_class: bool = False) -> np.ndarray:
    """p-values from scores −log p of some samples and of test images."""
    units = Units.of(tuple(map(str, range(len(y)))))
    weights = voices(units, torch.tensor(y), p.shape[1], torch.ones(len(y), dtype=torch.bool), by_class=by_class)
    own = torch.tensor(-np.log(p[range(len(y)), y]))
    return p_values(own, torch.tensor(-np.log(test))[None], units.member, weights).numpy()


@pytest.mark.parametrize("by_class", [False, True])
def test_p_values_are_those_of_crepes(by_class: bool) -> None:
    crepes = pytest.importorskip("crepes")
    (p, y), (test, _) = scored(), scored(25, 1)
    for k in range(4):
        theirs, some = crepes.ConformalClassifier(), y == k if by_class else y >= 0
        theirs.fit(-np.log(p[some, y[some]]))
        expected = theirs.predict_p(-np.log(test), smoothing=False)[:, k]
        np.testing.assert_allclose(by_scores(p, y, test, by_class=by_class)[:, k], expected, atol=1e-12)


def closed_form_head(mu: float, beta: float) -> Any:
    """For scikit-learn: the closed-form head at a fixed ridge strength and temperature, whatever the samples."""
    base = pytest.importorskip("sklearn.base")

    class Head(base.ClassifierMixin, base.BaseEstimator):  # type: ignore[misc]
        def fit(self, x: np.ndarray, y: np.ndarray) -> Any:
            self.model_ = classifier(solver="head", weight_decay=mu / len(x)).fit(x.reshape(-1, 3, 4), y)
            self.classes_ = self.model_.classes_
            return self

        def predict_proba(self, x: np.ndarray) -> np.ndarray:
            outputs = self.model_.decision_function(x.reshape(-1, 3, 4))
            return probabilities(torch.tensor(outputs), beta).numpy()

        def predict(self, x: np.ndarray) -> np.ndarray:
            return self.classes_[self.predict_proba(x).argmax(1)]

    return Head()


def test_jackknife_plus_is_that_of_mapie_by_real_refits() -> None:
    mapie = pytest.importorskip("mapie.classification")
    selection = pytest.importorskip("sklearn.model_selection")
    x, y = data(18, signal=0.4)
    test = data(12, seed=7, signal=0.4)[0]
    model = classifier(solver="head", weight_decay=0.1).fit(x, y)
    model.analyse(x)
    head = closed_form_head(0.1 * 18, model.fitted_.beta)
    theirs = mapie.CrossConformalClassifier(head, confidence_level=[0.5, 0.7, 0.8], cv=selection.LeaveOneOut())
    theirs.fit_conformalize(x.reshape(18, -1), y)
    expected = theirs.predict_set(test.reshape(12, -1), agg_scores="crossval")[1]
    found = model.predict_set(test, 0.5)
    for k, coverage in enumerate((0.5, 0.7, 0.8)):
        np.testing.assert_array_equal(found.at(coverage).included, expected[..., k])
