"""Questions about a fine-tuned network: answered by the closed-form head on its features, and called estimates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from closeness import relative
from dense import ridge_regression
from finetuned_models import tuned_model
from fits import CPU, classifier, convnet, kind, pictures
from lqf import LQFClassifier
from lqf.analysis.method import FIXED_NETWORK
from lqf.data import load_samples, open_images
from lqf.linear.model import with_one
from lqf.linear.targets import encode
from lqf.reports.explanation import explanations

N, TOL = 18, 1e-8
S = np.random.default_rng(3).uniform(0.5, 2, N)
GROUPS = np.arange(N) // 6 * 3 + np.arange(N) % 3


class Case:
    """A fine-tuned network that predicts over eight views, and refits of the closed-form head on its features."""

    def __init__(self, n_classes: int, groups: np.ndarray | None = None):
        self.x, self.y = pictures(N, n_classes)
        self.new = pictures(4, n_classes, seed=5)[0]
        self.fitted = tuned_model(self.x, self.y, sample_weight=S, groups=groups, shown="crops8")
        self.model: LQFClassifier = classifier(backbone=convnet(), size=8)
        self.model._adopt(self.fitted)
        self.analysis = self.model.analyse(self.x)
        self.train, self.test = (with_one(self._features(x, p)) for x, p in self._shown())
        self.mu, self.labels = self.analysis.problem.ridge.head, torch.tensor(self.y)

    def _shown(self) -> list[tuple]:
        return [(self.x, self.fitted.trained_on), (self.new, self.fitted.preprocess)]

    def _features(self, x: np.ndarray, preprocess: object) -> Tensor:
        """Averaged over views, of which the training images have one."""
        images = open_images(load_samples(x, tensors=kind(x)), preprocess)  # type: ignore[arg-type]
        return self.fitted.features(images, device=CPU, batch_size=5)

    def refit(self, z: Tensor, factors: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Outputs by the head after a fit with the samples' weights multiplied and other labels."""
        weights = torch.tensor(S) * (1 if factors is None else factors)
        targets = encode(self.labels if labels is None else labels, len(self.fitted.classes), self.fitted.alpha)
        v = ridge_regression(self.train, targets - self.fitted.constant, weights, self.mu)
        return self.fitted.constant + z @ v

    def without(self, samples: list[int], z: Tensor) -> Tensor:
        factors = torch.ones(N, dtype=torch.float64)
        factors[samples] = 0
        return self.refit(z, factors)


@pytest.fixture(scope="module", params=[3, 2], ids=["three classes", "two classes"])
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def test_effects_are_those_of_the_head_refitted_on_the_features(case: Case) -> None:
    found, whole = case.analysis.influence(case.new), case.refit(case.test)
    assert (found.level, found.note) == ("estimated", FIXED_NETWORK)
    for i in range(N):
        assert relative(found.effects[i], case.without([i], case.test) - whole) < TOL
    some = case.analysis.influence(case.new, units=[4, "2"])
    torch.testing.assert_close(some.effects, found.effects[[4, 2]], rtol=1e-10, atol=1e-12)


def test_predictions_are_the_network_s_own(case: Case) -> None:
    own = torch.tensor(case.model.decision_function(case.new)).view(4, -1)
    for found in (case.analysis.influence(case.new).outputs, case.analysis.what_if(case.new).before):
        torch.testing.assert_close(found, own, rtol=1e-10, atol=1e-10)
    assert relative(case.refit(case.test), own) > 1e-3  # the head alone says something else


def test_what_if_changes_the_network_s_outputs_by_what_the_head_changes(case: Case) -> None:
    factors, labels = torch.ones(N, dtype=torch.float64), case.labels.clone()
    factors[[2, 5]], factors[7] = 0, 2
    labels[[7, 11]] = (labels[[7, 11]] + 1) % len(case.fitted.classes)
    relabel = {i: str(int(labels[i])) for i in (7, 11)}
    found = case.analysis.what_if(case.new, without=[2, "5"], relabel=relabel, weights={7: 2})
    assert (found.level, found.note) == ("estimated", FIXED_NETWORK)
    change = case.refit(case.test, factors, labels) - case.refit(case.test)
    assert relative(found.outputs - found.before, change) < TOL


def test_leave_one_out_is_that_of_the_head_on_the_features(case: Case) -> None:
    found = case.analysis.leave_one_out()
    expected = torch.stack([case.without([i], case.train[i]) for i in range(N)])
    torch.testing.assert_close(found.outputs, expected, rtol=TOL, atol=TOL)
    assert (found.level, found.note) == ("estimated", FIXED_NETWORK)


def test_information_is_the_mean_square_of_the_effects(case: Case) -> None:
    effects, found = case.analysis.influence(case.new).effects, case.analysis.information(case.new)
    torch.testing.assert_close(found.value, effects.square().sum(2).mean(1), rtol=1e-8, atol=1e-12)
    assert (found.level, found.note) == ("estimated", FIXED_NETWORK)


def test_an_audit_rests_on_the_networks_without_each_fold_and_says_how_exact_it_is(case: Case) -> None:
    audit, loo = case.model.audit(case.x), case.fitted.loo
    assert loo is not None
    assert audit.levels["leave_one_out"] == {"level": "estimated", "note": "by networks that were made up"}
    assert audit.levels["information"] == {"level": "estimated", "note": FIXED_NETWORK}
    assert audit.loo_error == loo.error
    assert len(audit.contradicted) == int((loo.predicted != loo.labels).sum())
    assert len(audit.information) == N


def test_an_explanation_names_what_pushed_the_network_s_own_prediction(case: Case) -> None:
    contrast = case.analysis.contrast(case.new)
    told = explanations(contrast, case.analysis.labels, most=3)
    assert [e.predicted for e in told] == [str(c) for c in case.model.predict(case.new)]
    np.testing.assert_allclose([e.probability for e in told], case.model.predict_proba(case.new).max(1), rtol=1e-8)
    for e in told:
        strongest = contrast.effects[:, e.query].argmin()
        assert e.towards[0].name == str(int(strongest))


def test_groups_leave_together() -> None:
    case = Case(3, GROUPS)
    found, whole = case.analysis.influence(case.new), case.refit(case.test)
    assert len(found.units) == 9
    for u in range(9):
        gone = found.units.samples(u).tolist()
        assert len(gone) == 2
        assert relative(found.effects[u], case.without(gone, case.test) - whole) < TOL
