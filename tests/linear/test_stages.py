"""Ridge strengths stage by stage: which weight has which, and what every part of the mathematics makes of them."""

import pytest
import torch
from torch import nn

from cases import every_network, network
from closeness import relative
from dense import normal_equations, optimum, ridge_matrix, rows
from lqf.curvature import precondition
from lqf.kernels.tangent import averaged_kernels, exact_kernels
from lqf.linear.linearize import Linearization
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge, stage_of
from lqf.linear.stages import REST, group_of, ridge_by_groups, stage_groups
from lqf.solvers.solution import certify
from problems import features, full_kernel, problem, solve_dense, solve_pcg


def by_stage(p: QuadraticProblem, head: float = 3.0) -> tuple[QuadraticProblem, tuple[tuple[str, ...], ...]]:
    """The problem with a strength of its own for every stage: 1, 4, 16, …"""
    groups = stage_groups(p.model.body)
    strengths = [4.0**i for i in range(len(groups))]
    return p.with_ridge(ridge_by_groups(head, strengths, groups, 2.0)), groups


def test_a_weight_belongs_to_the_stage_with_the_longest_name_that_it_begins_with() -> None:
    names = ["blocks", "blocks.1", "head"]
    assert stage_of("blocks.1.conv.weight", names) == 1
    assert stage_of("blocks.10.conv.weight", names) == 0
    assert stage_of("blocks.1", names) == 1
    assert stage_of("header.weight", names) is None


def test_strengths_by_name_survive_json() -> None:
    ridge = Ridge(0.1, 2.0, (("a", 3.0), ("a.b", 1 / 3)))
    assert Ridge.from_dict(ridge.to_dict()) == ridge
    assert Ridge.from_dict({"head": 0.1, "body": 2.0}) == Ridge(0.1, 2.0)
    assert Ridge(0.1, 2.0).to_dict() == {"head": 0.1, "body": 2.0}  # as models of before have it
    assert [ridge.of(w) for w in ("a.weight", "a.b.weight", "c")] == [3.0, 1 / 3, 2.0]
    assert ridge.lowest == 0.1
    assert Ridge(9.0, 2.0, (("a", 0.5),)).lowest == 0.5


def test_multiples_of_a_ridge_have_the_same_ratios() -> None:
    ridge = Ridge(1.0, 2.0, (("a", 6.0),))
    assert ridge.scaled(3.0).with_head(7.0).is_multiple(ridge)
    assert not Ridge(1.0, 2.0, (("a", 5.0),)).is_multiple(ridge)
    assert not ridge.is_multiple(None)
    assert Ridge(1.0, 5.0).is_multiple(None)
    assert Ridge(1.0, 5.0, (("a", 5.0),)).is_multiple(None)


def test_groups_hold_every_weight_once_and_loose_ones_go_with_the_first() -> None:
    body = Linearization(network("attention"))
    groups = stage_groups(body)
    assert REST in groups[0]  # the position embedding
    assert {group_of(w, groups) for w in body.layout.names} == set(range(len(groups)))
    assert group_of("position", groups) == 0


def test_many_stages_share_strengths_with_their_neighbours() -> None:
    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(12))).eval()
    groups = stage_groups(Linearization(net), most=5)
    assert len(groups) == 5
    assert [int(name) for group in groups for name in group] == list(range(12))


def test_a_network_that_cannot_be_cut_is_one_group() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) if float(x.sum()) > 0 else self.a(-x)

    body = Linearization(Branching().eval())
    assert stage_groups(body) == ((REST,),)
    assert ridge_by_groups(1.0, [3.0], ((REST,),), 2.0) == Ridge(1.0, 3.0)


@every_network
@pytest.mark.filterwarnings("ignore:K-FAC has no rule")
def test_dense_pcg_and_normal_equations_agree(name: str) -> None:
    weights = torch.rand(14, dtype=torch.float64) + 0.5
    p, _ = by_stage(problem(name, heads=2, around_w0=False, weights=weights))
    assert len(ridge_matrix(p).unique()) > 2
    expected = optimum(p)
    scale = float(expected.abs().max())
    for found in (solve_dense(p), solve_pcg(p), solve_pcg(p, plain=True)):
        torch.testing.assert_close(found.delta, expected, rtol=1e-8, atol=1e-8 * scale)
        assert found.certificate.converged


@every_network
def test_the_objective_s_gradient_is_that_of_the_dense_matrices(name: str) -> None:
    p, _ = by_stage(problem(name, heads=2))
    h, b = normal_equations(p)
    v = torch.randn(p.size, dtype=torch.float64)
    torch.testing.assert_close(p.product(v), h @ v, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(p.negative_gradient(v), b - h @ v, rtol=1e-9, atol=1e-8)
    u = torch.randn_like(p.targets)
    j = rows(p)[0].flatten(0, 1)
    torch.testing.assert_close(p.from_dual(u), j.T @ u.flatten() / ridge_matrix(p), rtol=1e-9, atol=1e-9)


@every_network
@pytest.mark.parametrize("budget", [1 << 30, 14 * 3 * 8 * 5])
def test_kernels_by_stage_add_up_to_the_whole_one(name: str, budget: int) -> None:
    p, groups = by_stage(problem(name, heads=2))
    z, alone = features(p), torch.arange(14)
    split = exact_kernels(p, z, alone, budget=budget, stages=groups)
    mixed = exact_kernels(p, z, alone, budget=budget)
    j = rows(p)[0].flatten(0, 1)
    expected = j @ torch.diag(p.ridge.head / ridge_matrix(p)) @ j.T
    assert split.body.shape == (len(groups), 42, 42)
    torch.testing.assert_close(split.whole(p.ridge), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(mixed.whole(p.ridge), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(mixed.whole(p.ridge.scaled(7.0)), expected, rtol=1e-9, atol=1e-9)
    assert mixed.rhs_norm() is None
    assert split.rhs_norm() == pytest.approx(float(normal_equations(p)[1].norm()))
    with pytest.raises(ValueError, match="other strengths"):
        mixed.whole(Ridge(3.0, 2.0))


def test_averaged_kernels_by_stage_add_up_too() -> None:
    p, groups = by_stage(problem("convnet", n_classes=2, heads=2))
    z, alone = features(p), torch.arange(14)
    split = averaged_kernels(p, z, alone, budget=1 << 30, most_samples=14, stages=groups)
    exact = exact_kernels(p, z, alone, budget=1 << 30)
    torch.testing.assert_close(split.whole(p.ridge), exact.whole(p.ridge), rtol=1e-9, atol=1e-9)
    mixed = averaged_kernels(p, z, alone, budget=1 << 30, most_samples=14)
    torch.testing.assert_close(mixed.whole(p.ridge), exact.whole(p.ridge), rtol=1e-9, atol=1e-9)


def test_leave_one_out_equals_retraining() -> None:
    p, _ = by_stage(problem("convnet", heads=2))
    r = p.initial_residual(features(p))
    fast = full_kernel(p).loo(r.reshape(-1, 1), p.ridge.head).view_as(r)
    for i in range(len(r)):
        keep = torch.arange(len(r)) != i
        torch.testing.assert_close(fast[i], p.residuals(optimum(p, keep))[i], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["convnet", "mlp"])
def test_kfac_takes_every_layer_s_own_strength(name: str) -> None:
    p, _ = by_stage(problem(name))
    kfac = precondition(p, features(p), draws=None).body
    v = torch.randn(p.model.body.size, dtype=torch.float64)
    solved = p.model.body.layout.views(kfac.solve(v, p.ridge))
    for weight, value in solved.items():
        alike = Ridge(1.0, p.ridge.of(weight))
        expected = p.model.body.layout.views(kfac.solve(v, alike))[weight]
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    twice = kfac.inverse_root(kfac.inverse_root(v, p.ridge), p.ridge)
    assert relative(twice, kfac.solve(v, p.ridge)) < 1e-8


def test_the_certificate_bounds_the_distance_by_the_lowest_strength() -> None:
    p, _ = by_stage(problem("convnet"), head=50.0)
    short = solve_pcg(p, max_passes=6, plain=True)
    assert certify(p, short.delta, tol=1.0).error_bound == pytest.approx(short.certificate.error_bound, rel=1e-6)
    assert float((short.delta - optimum(p)).norm()) <= short.certificate.error_bound


def test_a_stage_with_a_great_strength_is_left_alone() -> None:
    p, groups = by_stage(problem("convnet", around_w0=False))
    last = groups[-1][0]
    stages = tuple((name, 1e13 if name == last else mu) for name, mu in p.ridge.stages)
    frozen = p.with_ridge(Ridge(p.ridge.head, p.ridge.body, stages))
    names = [w for w in p.model.body.layout.names if group_of(w, groups) < len(groups) - 1]
    others = Linearization(p.model.body.module, names)
    expected = optimum(frozen.with_body(others))
    body = p.model.body.layout.views(p.model.split(solve_dense(frozen, tol=1e-9).delta)[1])
    kept = others.layout.views(frozen.with_body(others).model.split(expected)[1])
    for weight, value in kept.items():
        torch.testing.assert_close(body[weight], value, rtol=1e-6, atol=1e-6)
