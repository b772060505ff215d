"""Standard deviations are those of the covariance σ² J_x H⁻¹ J_xᵀ, built from dense matrices."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from closeness import relative
from dense import jacobian, normal_equations, ridge_matrix, rows
from fits import FIXED, classifier, convnet, data, pictures
from lqf import LQFClassifier
from lqf.linear.model import with_one
from real_refits import Refitted
from stacks import stacked

PCG: dict[str, Any] = {"solver": "pcg", "linearize": "second", "batch_size": 64, **FIXED}
CASES: dict[str, dict[str, Any]] = {
    "dense": {"solver": "dense", **FIXED},
    "dense, one output": {"solver": "dense", "n_classes": 2, **FIXED},
    "dense, prefix": {"solver": "dense", "linearize": "second", **FIXED},
    "dense around w0": {"solver": "dense", "form": "w0", "weight_decay": 0.1},
    "head": {"solver": "head", "weight_decay": 0.1},
    "head, few features": {"solver": "head", "weight_decay": 0.1, "n": 24},
    "pcg": {**PCG, "loo": "none"},
    "pcg, folds": {**PCG, "loo": "folds"},
}
TOL = {"pcg": 1e-4, "pcg, folds": 1e-4}


def fitted(case: str, *, groups: bool = False, views: bool = False) -> tuple[LQFClassifier, Refitted, Any]:
    params = dict(CASES[case])
    n_classes, n = params.pop("n_classes", 3), params.pop("n", 12 if "pcg" in case else 18)
    if views:
        x, y = pictures(9, side=40)
        stage = {} if params["solver"] == "head" else {"linearize": "deep"}
        model = classifier(backbone=convnet(), size=32, views="flip", **{**params, **stage}).fit(x, y)
        n_test = 1 if params["solver"] == "pcg" else 3
        test, _ = pictures(n_test, side=40, seed=5)
        refit = Refitted(model, x, torch.zeros(1, 3, 32, 32, dtype=torch.float64))
        refit._inputs = refit.analysis.problem.inputs_of(refit.analysis.queries(test).images).fetch(
            torch.arange(2 * n_test)
        )
        return model, refit, test
    x, y = data(n, n_classes)
    s = np.random.default_rng(3).uniform(0.5, 2, n)
    model = classifier(**params).fit(x, y, s, groups=np.arange(n) // 2 if groups else None)
    test, _ = data(5, n_classes, seed=7)
    return model, Refitted(model, x, torch.tensor(test)), test


def rows_at(refit: Refitted, x: Tensor, heads: Tensor) -> Tensor:
    """J (rows, C, size) of images through a head (C, p+1)."""
    model = refit.problem.model
    z, jac = model.body.value(x), jacobian(model.body, x)
    head = torch.einsum("np,cd->ncdp", with_one(z), torch.eye(model.n_outputs, dtype=z.dtype)).flatten(2)
    return head if refit.alone else torch.cat([head, heads[:, :-1] @ jac], -1)


def hessian(refit: Refitted, factors: Tensor | None = None) -> Tensor:
    weights = refit.problem.weights
    if factors is not None:
        weights = weights * factors.repeat_interleave(refit.n_views)
    h = normal_equations(refit.problem, weights)[0]
    k = refit.problem.model.head_size
    return h[:k, :k] if refit.alone else h


def brute_noise(refit: Refitted, units: list[list[int]]) -> float:
    """Σ s e·e^loo / (N·C) by real refits."""
    e, s, v = refit.residuals(), refit.problem.weights, refit.n_views
    total = 0.0
    for unit in units:
        rows = [i * v + k for i in unit for k in range(v)]
        total += float((s[rows, None] * e[rows] * refit.residuals(refit.all_but(unit))[rows]).sum())
    return total / (len(s) // v * e.shape[1])


def brute_covariance(refit: Refitted, noise: float, inverse: Tensor | None = None) -> Tensor:
    j = rows_at(refit, refit._inputs, refit.problem.model.heads.mean(0))
    j = j.view(-1, refit.n_views, *j.shape[1:]).mean(1)
    return noise * j @ (torch.linalg.inv(hessian(refit)) if inverse is None else inverse) @ j.mT


@pytest.mark.parametrize("case", CASES)
def test_covariance_is_that_of_dense_matrices(case: str) -> None:
    model, refit, test = fitted(case)
    found = model.predict_std(test)
    noise = brute_noise(refit, [[i] for i in range(len(refit.analysis.ids))])
    expected = brute_covariance(refit, noise if "pcg" not in case else found.noise)
    assert relative(found.covariance, expected) < TOL.get(case, 1e-8)
    torch.testing.assert_close(found.value, found.covariance.diagonal(dim1=1, dim2=2).sqrt())
    assert np.asarray(found).shape == model.decision_function(test).shape
    assert found.level == ("estimated" if "pcg" in case else "exact")
    if "pcg" not in case:
        assert found.noise == pytest.approx(noise, rel=1e-8)


@pytest.mark.parametrize("case", ["dense", "head"])
def test_groups_leave_together_for_the_noise(case: str) -> None:
    model, refit, test = fitted(case, groups=True)
    noise = brute_noise(refit, [[2 * u, 2 * u + 1] for u in range(9)])
    assert model.predict_std(test).noise == pytest.approx(noise, rel=1e-8)


@pytest.mark.parametrize("case", ["dense", "head", "pcg"])
def test_views_are_averaged(case: str) -> None:
    model, refit, test = fitted(case, views=True)
    found = model.predict_std(test)
    assert relative(found.covariance, brute_covariance(refit, found.noise)) < TOL.get(case, 1e-6)


def brute_unexplained(refit: Refitted, units: list[list[int]]) -> tuple[Tensor, Tensor]:
    """tr J H⁻¹ Jᵀ / tr J M⁻¹ Jᵀ of test images, and of training samples (their own heads) without their unit."""
    total = lambda c: c.diagonal(dim1=1, dim2=2).sum(1)  # noqa: E731
    j, size = rows(refit.problem)[0], len(hessian(refit))
    j = j[..., :size].view(-1, refit.n_views, *j.shape[1:2], size).mean(1)
    inverse = torch.diag(1 / ridge_matrix(refit.problem)[:size])
    out = torch.zeros(len(j), dtype=torch.float64)
    for unit in units:
        own, h = j[unit], hessian(refit, refit.all_but(unit))
        out[unit] = total(own @ torch.linalg.inv(h) @ own.mT) / total(own @ inverse @ own.mT)
    return total(brute_covariance(refit, 1.0)) / total(brute_covariance(refit, 1.0, inverse)), out


@pytest.mark.parametrize("case", ["dense", "dense, one output", "dense, prefix", "head", "head, few features"])
@pytest.mark.parametrize("groups", [False, True], ids=["", "groups"])
def test_novelty_compares_with_training_samples_without_their_unit(case: str, groups: bool) -> None:
    model, refit, test = fitted(case, groups=groups)
    n, size = len(refit.analysis.ids), 2 if groups else 1
    units = [list(range(u * size, (u + 1) * size)) for u in range(n // size)]
    asked, training = brute_unexplained(refit, units)
    found = refit.analysis.method.unexplained(refit.analysis.queries(test), refit.analysis.units)
    assert relative(found.asked, asked) < 1e-8
    assert relative(found.training, training) < 1e-8
    p = (1 + (training[:, None] >= asked).double().sum(0) / size) / (1 + len(units))
    novelty = model.novelty(test)
    torch.testing.assert_close(novelty.value, p)
    torch.testing.assert_close(novelty.unexplained, asked)
    assert novelty.level == "exact"


def test_novelty_averages_views() -> None:
    _, refit, test = fitted("dense", views=True)
    asked, training = brute_unexplained(refit, [[i] for i in range(9)])
    found = refit.analysis.method.unexplained(refit.analysis.queries(test), refit.analysis.units)
    assert relative(found.asked, asked) < 1e-6
    assert relative(found.training, training) < 1e-6


def test_novelty_by_iteration_is_estimated_and_exact_with_one_output() -> None:
    x, y = data(12, 2)
    test = data(3, 2, seed=7)[0]
    pcg = classifier(**PCG, loo="none").fit(x, y)
    pcg.analyse(x)
    found = pcg.novelty(test)
    assert found.level == "estimated"
    pcg.analyse(x, method="dense")
    torch.testing.assert_close(found.value, pcg.novelty(test).value)


def test_far_away_is_novel() -> None:
    model, _, test = fitted("head, few features")
    assert float(model.novelty(100 * test).p_values.max()) < 0.1


def test_a_stack_is_at_most_as_unsure_as_the_mean_of_its_members() -> None:
    x, y = data(18)
    test = data(4, seed=7)[0]
    models = {"head": classifier(solver="head", weight_decay=0.1).fit(x, y), "LQF": classifier(**FIXED).fit(x, y)}
    stack = classifier()
    stack._adopt(stacked(models, (0.25, 0.75)))
    for model in (*models.values(), stack):
        model.analyse(x)
    found = stack.predict_std(test)
    expected = sum(w * m.predict_std(test).covariance for w, m in zip((0.25, 0.75), models.values(), strict=True))
    assert relative(found.covariance, expected) < 1e-10
    assert found.level == "estimated"
    assert len(stack.novelty(test)) == 4
    sets = stack.predict_set(test, 0.8)
    assert (sets.way, sets.level, sets.guarantee) == ("jackknife", "estimated", None)


def test_one_output_by_solves_has_the_noise_of_the_factorisation() -> None:
    x, y = data(12, 2)
    test = data(3, 2, seed=7)[0]
    pcg = classifier(**PCG, loo="none").fit(x, y)
    pcg.analyse(x)
    found = pcg.predict_std(test)
    assert found.level == "solved"
    pcg.analyse(x, method="dense")
    assert relative(found.value, pcg.predict_std(test).value) < 1e-4
