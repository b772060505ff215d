"""Dense, PCG, SGD, Adam and the closed form reach the same optimum; laws that an exact solution obeys."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from cases import every_network
from closeness import relative
from dense import optimum
from lqf.curvature import precondition
from lqf.curvature.damping import Damping
from lqf.fast import FastLinearization
from lqf.kernels.tangent import exact_kernels
from lqf.linear.head_products import COLUMNS
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.solvers import PCG, SGD, Adam, Head
from lqf.solvers.block_cg import conjugate_gradients
from lqf.solvers.schur import SchurComplement
from lqf.solvers.solution import Solution, certify
from problems import features, full_kernel, head_kernel, problem, solve_dense, solve_pcg
from recorder import Recorder


@every_network
@pytest.mark.parametrize("around_w0", [True, False])
@pytest.mark.filterwarnings("ignore:K-FAC has no rule")
def test_dense_pcg_and_normal_equations_agree(name: str, around_w0: bool) -> None:
    weights = torch.rand(14, dtype=torch.float64) + 0.5
    p = problem(name, heads=2, around_w0=around_w0, ridge=Ridge(3.0, 5.0), weights=weights)
    expected = optimum(p)
    dense = solve_dense(p)
    pcg = solve_pcg(p)
    scale = float(expected.abs().max())
    torch.testing.assert_close(dense.delta, expected, rtol=1e-8, atol=1e-8 * scale)
    torch.testing.assert_close(pcg.delta, expected, rtol=1e-8, atol=1e-8 * scale)
    assert dense.level == "exact"
    assert pcg.level == "solved"
    assert pcg.certificate.converged
    assert dense.certificate.relative_residual < 1e-11


def test_kernel_in_small_parts_is_the_same() -> None:
    p = problem("convnet", heads=2)
    z = features(p)
    whole = exact_kernels(p, z, torch.arange(14), budget=1 << 30).body
    parts = exact_kernels(p, z, torch.arange(14), budget=14 * 3 * 8 * 5).body
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)


def test_closed_form_head_is_the_problem_without_a_body() -> None:
    p = problem("convnet", around_w0=False, ridge=Ridge(0.3, 1e14))
    z = features(p)
    head = Head.of(z, p.initial_residual(z), p.weights, torch.arange(len(z)))
    v = head.solve(0.3)
    torch.testing.assert_close(optimum(p)[: p.model.head_size].view_as(v), v, rtol=1e-7, atol=1e-7)
    assert head.relative_residual(v, 0.3) < 1e-9


def test_features_wider_than_what_is_held_in_float64_at_a_time() -> None:
    z, r = torch.randn(6, 2 * COLUMNS + 5, generator=torch.Generator().manual_seed(0)), torch.eye(6)[:, :2]
    head = Head.of(z, r, torch.ones(6), torch.arange(6))
    assert head.relative_residual(head.solve(0.3), 0.3) < 1e-10
    assert head.relative_residual(0 * head.solve(0.3), 0.3) == pytest.approx(1)


@pytest.mark.parametrize("name", ["convnet", "attention"])
def test_leave_one_out_equals_retraining(name: str) -> None:
    p = problem(name, heads=2, ridge=Ridge(3.0, 5.0), weights=torch.rand(14, dtype=torch.float64) + 0.5)
    z = features(p)
    r = p.initial_residual(z)
    fast = full_kernel(p).loo(r.reshape(-1, 1), 3.0).view_as(r)
    for i in range(len(z)):
        keep = torch.arange(len(z)) != i
        slow = p.residuals(optimum(p, keep))[i]
        torch.testing.assert_close(fast[i], slow, rtol=1e-8, atol=1e-8)


def test_a_duplicate_equals_weight_two_and_order_is_free() -> None:
    p = problem("convnet")
    order = torch.randperm(14)
    q = problem(
        "convnet", x=p.inputs.fetch(torch.arange(14))[order], labels=(torch.arange(14) % 3)[order], batch_size=5
    )
    torch.testing.assert_close(solve_dense(p).delta, solve_dense(q).delta, rtol=1e-8, atol=1e-9)
    x = p.inputs.fetch(torch.arange(14))
    twice = problem("convnet", x=torch.cat([x, x[:1]]), labels=torch.cat([torch.arange(14) % 3, torch.zeros(1).long()]))
    heavy = problem("convnet", weights=torch.tensor([2.0] + [1.0] * 13))
    for found in (solve_dense(twice).delta, solve_dense(heavy).delta, solve_pcg(heavy, 1e-12).delta):
        torch.testing.assert_close(found, optimum(twice), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("solve", [solve_dense, solve_pcg])
def test_class_permutation_permutes_the_output(solve: Callable[[QuadraticProblem], Solution]) -> None:
    labels = torch.arange(14) % 3
    p = problem("mlp", around_w0=False)
    swapped = problem("mlp", labels=2 - labels, around_w0=False)
    flipped = replace(swapped, model=replace(p.model, heads=p.model.heads.flip(1)))
    a, b = (q.targets - q.residuals(solve(q).delta) for q in (p, flipped))
    torch.testing.assert_close(a, b.flip(1), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(a, p.targets - p.residuals(optimum(p)), rtol=1e-8, atol=1e-8)


def test_preconditioning_helps_and_failure_is_flagged() -> None:
    p = problem("mlp", ridge=Ridge(1e-2, 1e-2))
    plain = solve_pcg(p, 1e-2, 400, plain=True)
    helped = solve_pcg(p, 1e-2, 400)
    assert helped.certificate.passes < plain.certificate.passes
    short = solve_pcg(p, max_passes=4, plain=True)
    assert not short.certificate.converged
    assert "stopped before reaching" in short.certificate.sentence
    assert short.certificate.relative_residual == pytest.approx(
        certify(p, short.delta, tol=1).relative_residual, rel=1e-6
    )


def test_certificate_bounds_the_error() -> None:
    p = problem("convnet")
    short = solve_pcg(p, max_passes=6, plain=True)
    assert float((short.delta - optimum(p)).norm()) <= short.certificate.error_bound


def test_warm_start_reaches_the_same_optimum() -> None:
    p = problem("convnet")
    first = solve_pcg(p, max_passes=7, plain=True)
    body = p.model.split(first.delta)[1]
    again = solve_pcg(p, plain=True, start=body, passes=first.certificate.passes)
    torch.testing.assert_close(again.delta, optimum(p), rtol=1e-7, atol=1e-8)


def test_a_start_whose_residual_is_a_fast_product_reaches_the_same_optimum_and_measures_the_last() -> None:
    p = problem("convnet")
    body = p.model.split(solve_pcg(p, max_passes=7, plain=True).delta)[1]
    solver = PCG(tol=1e-10, max_passes=2000, measure_start=False)
    again = solver.solve(p, features(p), head_kernel(p), None, body)
    torch.testing.assert_close(again.delta, optimum(p), rtol=1e-7, atol=1e-8)
    wrong = replace(p, weights=1.1 * p.weights)  # whose products are a little off
    found = replace(solver, max_passes=10).solve(p, features(p), head_kernel(p), None, body, fast=wrong)
    measured = certify(p, found.delta, tol=1).relative_residual
    assert found.certificate.relative_residual == pytest.approx(measured, rel=1e-6)


def test_sgd_with_kfac_and_adam_approach_the_optimum() -> None:
    p = problem("mlp", ridge=Ridge(5.0, 5.0))
    pre = Damping(0.0, "none", 5).of(precondition(p, features(p), draws=None), p)
    start, best = p.value(p.zero()), p.value(optimum(p))
    for solver, preconditioner in (
        (SGD(epochs=60, batch_size=5), pre),
        (Adam(epochs=200, batch_size=5, learning_rate=0.05), None),
    ):
        solution = solver.solve(p, preconditioner)
        assert (p.value(solution.delta) - best) / (start - best) < 5e-2
        assert solution.solver == solver.name


def test_sgd_resumes_exactly() -> None:
    p = problem("mlp")
    pre = Damping(1.0, "factored", 28).of(precondition(p, features(p), draws=None), p)
    kept = {}
    whole = SGD(epochs=6).solve(p, pre, checkpoint=lambda s, k: kept.update({k: {n: t.clone() for n, t in s.items()}}))
    resumed = SGD(epochs=6).solve(p, pre, kept[3], epoch=3)
    assert torch.equal(whole.delta, resumed.delta)


@pytest.mark.parametrize("threads", [1, 2])
def test_float32_predictions_do_not_depend_on_order_batches_or_threads(threads: int) -> None:
    torch.set_num_threads(threads)
    reference = problem("convnet", dtype=torch.float32, around_w0=False, ridge=Ridge(5.0, 20.0))
    x, labels = reference.inputs.fetch(torch.arange(14)), torch.arange(14) % 3
    order = torch.randperm(14)
    other = problem(
        "convnet",
        dtype=torch.float32,
        around_w0=False,
        ridge=Ridge(5.0, 20.0),
        x=x[order],
        labels=labels[order],
        batch_size=14,
    )
    outputs = []
    for p, back in ((reference, torch.arange(14)), (other, torch.argsort(order))):
        for delta in (solve_dense(p, tol=1e-5).delta, solve_pcg(p, tol=1e-6, max_passes=150).delta):
            outputs.append((p.targets - p.residuals(delta))[back] / 15)
    for o in outputs[1:]:
        torch.testing.assert_close(o, outputs[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_the_residual_is_not_limited_by_the_type_of_the_products(name: str, dtype: torch.dtype) -> None:
    """Measured residuals refine what narrow products cannot see: far below their rounding, to the same optimum."""
    p = problem(name, ridge=Ridge(3.0, 5.0), around_w0=False)
    body = FastLinearization(p.model.body, dtype, p.inputs.example())
    fast = replace(p, model=replace(p.model, body=body))
    preconditioner = precondition(p, features(p), draws=None).body
    solver = PCG(tol=1e-8, max_passes=300, refresh=5)
    refined = solver.solve(p, features(p), head_kernel(p), preconditioner, fast=fast)
    assert refined.certificate.converged
    torch.testing.assert_close(refined.delta, optimum(p), rtol=1e-5, atol=1e-6)
    blind = SchurComplement(fast, features(p), head_kernel(p))
    b, b_norm = blind.rhs(), blind.unit()
    x = conjugate_gradients(
        blind,
        lambda r: torch.stack([preconditioner.solve(v, Ridge(5.0, 5.0)) for v in r]),
        p.zero_body()[None],
        b[None],
        torch.tensor([b_norm], dtype=torch.float64),
        tol=1e-8,
        max_passes=100,
    ).x
    gap = float(SchurComplement(p, features(p), head_kernel(p)).residual(x).norm()) / b_norm
    assert gap > 10 * refined.certificate.relative_residual  # without exact residuals the rounding stays


def test_float16_rescales_at_the_end_of_its_range() -> None:
    p = problem("convnet", ridge=Ridge(3.0, 5.0))
    body = FastLinearization(p.model.body, torch.float16, p.inputs.example())
    schur = SchurComplement(p, features(p), head_kernel(p), p.with_body(body))
    v = torch.randn_like(p.zero_body())
    exact = SchurComplement(p, features(p), head_kernel(p)).product(v)
    body._room = 2.0**18
    assert not torch.isfinite(body.jvp(p.inputs.example(), v)[1]).all()
    product = schur.product(v)
    assert body._room < 2.0**18
    assert relative(product, exact) < 0.05
    while body.rescale():
        pass
    body.jvp = lambda x, v: (torch.full((len(x), 4), torch.inf).to(x),) * 2  # type: ignore[method-assign]
    with pytest.raises(FloatingPointError):
        schur.product(v)


def test_products_out_of_range_begin_again_without_them() -> None:
    p = problem("convnet", ridge=Ridge(3.0, 5.0))
    broken = FastLinearization(p.model.body, torch.float64, p.inputs.example())
    broken.vjp = lambda x, u: torch.full((p.model.body.size,), torch.inf, dtype=torch.float64)  # type: ignore[method-assign]
    recorder = Recorder()
    fast = replace(p, model=replace(p.model, body=broken))
    solver = PCG(tol=1e-10, max_passes=300)
    solution = solver.solve(p, features(p), head_kernel(p), fast=fast, progress=recorder)
    torch.testing.assert_close(solution.delta, optimum(p), rtol=1e-7, atol=1e-8)
    assert "left the range" in recorder.said[0]


def test_a_loose_tolerance_is_not_met_by_the_head_alone() -> None:
    p = problem("mlp", ridge=Ridge(1e-3, 5.0), around_w0=False)
    schur = SchurComplement(p, features(p), head_kernel(p))
    b, b_norm = schur.rhs(), schur.unit()
    loose = 2 * float(b.norm()) / b_norm  # the start would do
    solution = solve_pcg(p, loose)
    assert len(solution.history) > 1
    assert solution.certificate.relative_residual <= 0.25 * float(b.norm()) / b_norm


def test_nothing_to_learn_is_solved_by_no_change() -> None:
    """Jᵀr = 0, as where a training before the solve left features that no longer differ between images."""
    p = problem("convnet")
    p = replace(p, targets=p.model.base(features(p), p.fold))
    for solution in (solve_dense(p), solve_pcg(p)):
        assert float(solution.delta.abs().max()) == 0
        assert solution.certificate.converged
        assert solution.certificate.relative_residual == 0
