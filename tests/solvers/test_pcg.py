"""Conjugate gradients that stop by the outputs: as near to the optimum's as was asked, from wherever they start."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from cases import network
from dense import optimum, ridge_regression, rows
from lqf.curvature import precondition
from lqf.linear.linearize import Linearization
from lqf.linear.model import with_one
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.solvers import PCG
from lqf.solvers.energy import SHARE
from lqf.solvers.schur import SchurComplement
from lqf.solvers.solution import Solution
from problems import features, head_kernel, problem

FACTOR = 2.0
"""How far beyond the tolerance the outputs may be: what stops a solve is an estimate, not a bound."""
WEIGHTS = torch.rand(14, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 0.5
RIDGES = [Ridge(1e-2, 1e-2), Ridge(3.0, 5.0), Ridge(100.0, 1000.0), Ridge(1.0, 1e5)]


def posed(name: str, ridge: Ridge) -> QuadraticProblem:
    return problem(name, heads=2, around_w0=False, ridge=ridge, weights=WEIGHTS)


def output_norm(p: QuadraticProblem) -> float:
    return SchurComplement(p, features(p), head_kernel(p)).output_norm()


class Solves:
    """One problem, solved by outputs."""

    def __init__(self, p: QuadraticProblem):
        self.problem, self.z = p, features(p)
        self.kfac = precondition(p, self.z, draws=None).body
        self.jacobian, _, self.s = rows(p)
        self.best, self.unit = optimum(p), output_norm(p)

    def __call__(self, tol: float, start: Tensor | None = None, max_passes: int = 400) -> Solution:
        solver = PCG(output_tol=tol, max_passes=max_passes)
        return solver.solve(self.problem, self.z, head_kernel(self.problem), self.kfac, start)

    def gap(self, a: Tensor, b: Tensor) -> float:
        """‖f(a) − f(b)‖_S of the training outputs, in units of their norm."""
        return float((self.s[:, None] * (self.jacobian @ (a - b)).square()).sum().sqrt()) / self.unit

    def starts(self) -> list[Tensor | None]:
        body = self.problem.model.split(self.best)[1]
        elsewhere = torch.randn(len(body), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        return [None, 0.1 * elsewhere, 1.3 * body]


@pytest.mark.parametrize("name", ["mlp", "convnet"])
@pytest.mark.parametrize("ridge", RIDGES, ids=lambda r: f"{r.head:g}, {r.body:g}")
def test_outputs_are_as_near_to_the_optimum_s_as_was_asked(name: str, ridge: Ridge) -> None:
    solve = Solves(posed(name, ridge))
    for tol in (0.1, 5e-3):
        solutions = [solve(tol, start) for start in solve.starts()]
        for found in solutions:
            proof = found.certificate
            assert proof.converged
            assert proof.output_gap is not None
            assert proof.output_gap <= tol
            assert solve.gap(found.delta, solve.best) <= FACTOR * tol
        for found in solutions[1:]:
            assert solve.gap(found.delta, solutions[0].delta) <= 2 * FACTOR * tol


def spoilt(p: QuadraticProblem, seed: int) -> QuadraticProblem:
    """Under a network whose channels differ by orders of magnitude, of which K-FAC is a poor account."""
    net, random = network("mlp").double(), torch.Generator().manual_seed(seed)
    for w in net.parameters():
        factors = 10 ** (1.5 * torch.randn(len(w), generator=random))
        w.data.mul_(factors.double().view(-1, *[1] * (w.ndim - 1)))
    return p.with_body(Linearization(net))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("mu", [1.0, 1e-2])
def test_ill_conditioned_networks_come_near_too_or_say_that_they_do_not(seed: int, mu: float) -> None:
    """By the gains of the steps alone, one of these stopped eight times its tolerance away."""
    solve = Solves(spoilt(problem("mlp", n=24, heads=2, around_w0=False, ridge=Ridge(1.0, mu)), seed))
    for tol in (0.1, 0.02):
        found = solve(tol, max_passes=300)
        proof, gap = found.certificate, solve.gap(found.delta, solve.best)
        assert proof.output_gap is not None
        assert proof.output_bound is not None
        assert gap <= proof.output_bound
        assert gap <= FACTOR * max(proof.output_gap, SHARE * proof.output_bound)
        assert proof.converged == (proof.output_gap <= tol)


@pytest.mark.parametrize("stages", [(), (("1", 2.0), ("3", 30.0))])
def test_no_distance_is_more_than_its_bound(stages: tuple[tuple[str, float], ...]) -> None:
    solve = Solves(posed("mlp", Ridge(0.7, 0.5, stages=stages)))
    bounds = []
    for passes in range(2, 30, 3):
        found = solve(1e-9, max_passes=passes)
        bound = found.certificate.output_bound
        assert bound is not None
        assert solve.gap(found.delta, solve.best) <= bound
        assert f"(estimated; at most {bound:.2g})" in found.certificate.sentence
        bounds.append(bound)
    assert bounds[-1] < 0.1 * bounds[0]


def test_what_the_ridge_allows_is_enough_where_it_is_strong() -> None:
    """Under a strong ridge the bound is the error itself, and the first residual proves that it is small."""
    solve = Solves(posed("mlp", Ridge(3.0, 1e9)))
    found = solve(0.02)
    proof = found.certificate
    assert proof.output_gap == proof.output_bound
    assert "(proven)" in proof.sentence
    assert solve.gap(found.delta, solve.best) <= 0.02
    assert proof.passes == 2


def test_a_tolerance_near_rounding_is_the_optimum() -> None:
    solve = Solves(posed("convnet", Ridge(3.0, 5.0)))
    found = solve(1e-12)
    torch.testing.assert_close(found.delta, solve.best, rtol=1e-9, atol=1e-10)
    assert found.certificate.relative_residual < 1e-10


def test_a_tighter_tolerance_takes_more_passes_and_comes_nearer() -> None:
    solve = Solves(posed("mlp", Ridge(0.7, 0.7)))
    loose, tight = solve(0.1), solve(1e-4)
    assert loose.certificate.passes < tight.certificate.passes
    assert solve.gap(loose.delta, solve.best) > 1e-3 > solve.gap(tight.delta, solve.best)


def test_what_ends_too_early_says_so() -> None:
    solve = Solves(posed("mlp", Ridge(1e-2, 1e-2)))
    found = solve(1e-6, max_passes=6)
    proof = found.certificate
    assert not proof.converged
    assert proof.output_gap is not None
    assert proof.output_gap > 1e-6
    assert proof.sentence.startswith("stopped before reaching the tolerance 1.0e-06: outputs within ")
    assert solve.gap(found.delta, solve.best) > 1e-6


def test_the_certificate_says_what_decided() -> None:
    solve = Solves(posed("mlp", Ridge(3.0, 5.0)))
    proof = solve(2e-2).certificate
    assert proof.sentence == (
        f"reached the tolerance 2.0e-02: outputs within {proof.output_gap:.2g} of the optimum's "
        f"(estimated; at most {proof.output_bound:.2g}), relative residual "
        f"{proof.relative_residual:.2e} after {proof.passes} passes over the data"
    )
    p = solve.problem
    residual = PCG(tol=1e-3, max_passes=200).solve(p, solve.z, head_kernel(p), solve.kfac).certificate
    assert residual.converged
    assert residual.output_gap is None
    assert "outputs" not in residual.sentence
    gradient = p.negative_gradient(solve(2e-2).delta)
    assert proof.relative_residual == pytest.approx(float(gradient.norm() / p.rhs().norm()), rel=1e-6)


def test_where_nothing_is_to_be_solved_the_outputs_are_the_optimum_s() -> None:
    """Under heads of zeros the body moves nothing."""
    p = posed("mlp", Ridge(3.0, 5.0))
    p = replace(p, model=replace(p.model, heads=torch.zeros_like(p.model.heads)))
    found = PCG(output_tol=1e-2).solve(p, features(p), head_kernel(p), None)
    assert found.certificate.output_gap == 0
    assert found.certificate.converged
    torch.testing.assert_close(found.delta, optimum(p), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("mu", "least"), [(0.1, False), (3.0, False), (1e5, True)])
def test_the_unit_is_the_norm_of_the_head_s_outputs_or_a_tenth_of_the_targets(mu: float, least: bool) -> None:
    p = posed("mlp", Ridge(mu, 1.0))
    z, r, s = with_one(features(p)), p.initial_residual(features(p)), p.weights
    head = z @ ridge_regression(z, r, s, mu)
    explained, targets = ((s[:, None] * f.square()).sum().sqrt() for f in (head, r))
    assert (float(explained) < 0.1 * float(targets)) is least
    expected = 0.1 * targets if least else explained
    assert output_norm(p) == pytest.approx(float(expected), rel=1e-9)
