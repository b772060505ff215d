"""The covariance of predictions equals the dense one, μ J_q H⁻¹ J_qᵀ; where it is averaged it is that of one output."""

import numpy as np
import pytest
import torch
from torch import Tensor

from dense import jacobian, ridge_matrix, rows
from fits import FIXED, classifier, convnet, data, opened, pictures, reopened
from lqf.linear.model import with_one
from lqf.selection.covariance import Uncertain, predictive_covariance


def whole(u: Uncertain) -> Tensor:
    return u.covariance.whole


def by_definition(problem, images) -> Tensor:
    """(Q·C, Q·C)."""
    j, _, s = rows(problem.quadratic)
    j, c = j.flatten(0, 1), j.shape[1]
    hessian = j.T @ (s.repeat_interleave(c)[:, None] * j) + torch.diag(ridge_matrix(problem.quadratic))
    inputs, model = problem.inputs_of(images), problem.model
    x = inputs.fetch(torch.arange(len(inputs)))
    z, w = model.body.value(x), model.heads.mean(0)
    body = torch.einsum("cp,bpd->bcd", w[:, :-1], jacobian(model.body, x))
    head = torch.einsum("bp,cd->bcdp", with_one(z), torch.eye(c).double()).flatten(2)
    q = torch.cat([head, body], -1).unflatten(0, (-1, inputs.n_views)).mean(1).flatten(0, 1)
    return problem.ridge.head * q @ torch.linalg.solve(hessian, q.T)


@pytest.mark.parametrize("views", ["none", "flip"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_of_a_dense_model(views, n_classes):
    x, y = pictures(12, n_classes)
    model = classifier(backbone=convnet(), size=8, views=views, pooling="avg", **FIXED).fit(x, y)
    problem, images = reopened(model, x, y), opened(*pictures(5, n_classes, seed=3), model.fitted_.preprocess)
    found = predictive_covariance(model.fitted_, problem, problem.encode(images))
    assert (found.level, found.covariance.outputs) == ("exact", problem.model.n_outputs)
    assert torch.allclose(whole(found), by_definition(problem, images), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("n", "asked"), [(3, 6), (3, 20), (30, 6)])
def test_of_a_head_with_fewer_and_more_rows_than_features(n, asked):
    x, y = data(n)
    weights = np.linspace(0.5, 2, n)
    model = classifier(solver="head", weight_decay=0.05).fit(x, y, sample_weight=weights)
    problem = reopened(model, x, y, sample_weight=weights)
    images = opened(*data(asked, seed=4), model.fitted_.preprocess)
    found = predictive_covariance(model.fitted_, problem, problem.encode(images))
    z, q = (with_one(t).double() for t in (problem.features, problem.encode(images).features))
    mu = problem.ridge.head
    inverse = torch.linalg.inv(z.T @ (torch.tensor(weights)[:, None] * z) + mu * torch.eye(z.shape[1]).double())
    assert (found.level, found.noise) == ("exact", mu)
    assert torch.allclose(whole(found), mu * q @ inverse @ q.T, rtol=0, atol=1e-9)


def test_of_the_kernel_averaged_over_outputs_which_is_exact_for_one():
    x, y = data(14, 2)
    model = classifier(solver="pcg", loo="none", **FIXED).fit(x, y)
    problem = reopened(model, x, y)
    images = opened(*data(5, 2, seed=4), model.fitted_.preprocess)
    found = predictive_covariance(model.fitted_, problem, problem.encode(images))
    assert found.level == "estimated"
    assert torch.allclose(whole(found), by_definition(problem, images), rtol=0, atol=1e-9)
