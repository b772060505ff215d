"""Kernels of head and body against the dense Jacobian."""

from itertools import product

import pytest
import torch
from torch import Tensor

from cases import every_network
from closeness import relative
from dense import optimum, rows
from fits import convnet, opened, outline, pictures
from lqf.backbones import load_backbone
from lqf.data import Preprocess
from lqf.kernels.gram import body_kernel
from lqf.kernels.tangent import RATIOS, Kernels, averaged_kernels, exact_kernels, rows_of, subproblem
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.settings import Settings
from lqf.solvers.solution import right_hand_side_norm
from problems import features, problem

BUDGET = 1 << 30
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def exact(p: QuadraticProblem) -> Kernels:
    return exact_kernels(p, features(p), torch.arange(len(p.targets)), budget=BUDGET)


def averaged(p: QuadraticProblem, **options: int) -> Kernels:
    groups = torch.arange(len(p.targets))
    return averaged_kernels(p, features(p), groups, **{"budget": BUDGET, "most_samples": 1000, **options})


def mean_over_outputs(kernel: Tensor, c: int) -> Tensor:
    """(nC, nC) -> (n, n): (1/C) Σ_c k((i, c), (j, c))."""
    n = len(kernel) // c
    return torch.einsum("icjc->ij", kernel.view(n, c, n, c)) / c


@every_network
@pytest.mark.parametrize("n_classes", [2, 3])
def test_exact_kernels_are_the_gram_of_the_jacobian(name: str, n_classes: int) -> None:
    p = problem(name, n=8, n_classes=n_classes, heads=2)
    j = rows(p)[0].flatten(0, 1)
    head, body = j[:, : p.model.head_size], j[:, p.model.head_size :]
    kernels = exact(p)
    assert kernels.exact
    torch.testing.assert_close(kernels.head, head @ head.T, **CLOSE)
    torch.testing.assert_close(kernels.body[0], body @ body.T, **CLOSE)
    torch.testing.assert_close(kernels.residual, p.initial_residual(features(p)), **CLOSE)


def test_kernels_factorised_with_omega_solve_the_problem_with_two_ridge_strengths() -> None:
    weights = torch.rand(14, dtype=torch.float64) + 0.5
    p = problem("convnet", heads=2, ridge=Ridge(0.6, 4.2), weights=weights)
    kernels = exact(p)
    e = kernels.factorise(Ridge(0.6, 4.2)).residual(kernels.residual.reshape(-1, 1), 0.6)
    torch.testing.assert_close(e.view_as(p.targets), p.residuals(optimum(p)), rtol=1e-8, atol=1e-8)


def test_ratios_are_in_units_of_the_traces() -> None:
    kernels = exact(problem())
    unit = float(kernels.body[0].trace() / kernels.head.trace())
    assert list(kernels.ratios()) == pytest.approx([unit * x for x in RATIOS])


@pytest.mark.parametrize("name", ["mlp", "scaled"])
def test_with_one_output_the_averaged_kernels_are_the_exact_ones(name: str) -> None:
    p = problem(name, n_classes=2, heads=2)
    a, b = averaged(p), exact(p)
    assert a.exact
    torch.testing.assert_close(a.body, b.body, **CLOSE)
    torch.testing.assert_close(a.head, b.head, **CLOSE)
    torch.testing.assert_close(a.residual, b.residual, **CLOSE)


def test_all_sign_combinations_give_the_mean_over_outputs() -> None:
    p = problem("convnet", heads=2)
    signs = torch.tensor(list(product([-1.0, 1.0], repeat=3)), dtype=torch.float64)

    def cotangents(index: Tensor) -> Tensor:
        return torch.stack([p.model.to_features(u.expand(len(index), 3), p.fold[index]) for u in signs])

    mean = body_kernel(p, cotangents, len(signs), budget=BUDGET, joint=False)[0] / 3
    torch.testing.assert_close(mean, mean_over_outputs(exact(p).body[0], 3), **CLOSE)


def test_random_signs_approach_the_mean_over_outputs() -> None:
    p = problem("mlp", n=6)
    expected = mean_over_outputs(exact(p).body[0], 3)
    draws = [averaged(p, draws=3, seed=s) for s in range(150)]
    assert not draws[0].exact
    assert relative(torch.stack([k.body[0] for k in draws]).mean(0), expected) < 0.1
    torch.testing.assert_close(mean_over_outputs(exact(p).head, 3), draws[0].head, **CLOSE)


def test_some_samples_have_their_part_of_the_kernel() -> None:
    p = problem("mlp", n_classes=2, weights=torch.rand(14, dtype=torch.float64) + 0.5)
    some, whole = averaged(p, most_samples=5, seed=1), averaged(p)
    index = some.samples
    assert len(index) == 5
    assert torch.equal(index, index.unique())  # sorted, each once
    torch.testing.assert_close(some.body[0], whole.body[0][index][:, index], **CLOSE)
    torch.testing.assert_close(some.head, whole.head[index][:, index], **CLOSE)
    torch.testing.assert_close(some.residual, whole.residual[index], **CLOSE)
    assert torch.equal(some.weights, p.weights[index])
    assert torch.equal(some.groups, index)
    assert not torch.equal(averaged(p, most_samples=5, seed=2).samples, index)


def test_samples_come_with_all_of_their_views() -> None:
    x, y = pictures(10, 2)
    preprocess = Preprocess(size=8, views="flip")
    images = opened(x, y, preprocess)
    training = outline(Settings(dtype="float64"), load_backbone(convnet()), images, preprocess)
    p, z, groups = training.quadratic, training.features, training.data.groups
    some = averaged_kernels(p, z, groups, budget=BUDGET, most_samples=4)
    index = rows_of(p, some.samples)
    assert index.tolist() == [2 * i + v for i in some.samples.tolist() for v in (0, 1)]
    whole = exact_kernels(p, z, groups, budget=BUDGET)
    torch.testing.assert_close(some.body[0], whole.body[0][index][:, index], **CLOSE)
    assert torch.equal(some.groups, groups[index])
    assert some.groups.tolist() == some.samples.repeat_interleave(2).tolist()


def test_a_subproblem_is_the_problem_of_its_samples() -> None:
    p = problem("convnet", heads=2, weights=torch.rand(14, dtype=torch.float64) + 0.5)
    index = torch.tensor([9, 2, 5])
    part = subproblem(p, index)
    j, r, s = rows(p)
    for mine, whole in zip(rows(part), (j, r, s), strict=True):
        torch.testing.assert_close(mine, whole[index], **CLOSE)
    torch.testing.assert_close(optimum(part), optimum(p, index), rtol=1e-8, atol=1e-8)


def test_exact_kernels_know_the_norm_of_the_right_hand_side() -> None:
    weights = torch.rand(14, dtype=torch.float64) + 0.5
    p = problem("convnet", heads=2, around_w0=False, weights=weights)
    z = features(p)
    kernels = exact_kernels(p, z, torch.arange(14), budget=1 << 30)
    assert kernels.rhs_norm() == pytest.approx(right_hand_side_norm(p), rel=1e-10)
