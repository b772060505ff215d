"""Conjugate gradients: several right-hand sides at once are each solved as if alone, by measured residuals."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from closeness import relative
from lqf.solvers.block_cg import Reached, conjugate_gradients

D, K = 20, 5


@dataclass
class Dense:
    """A x = b with a dense matrix; products may be disturbed."""

    a: Tensor
    b: Tensor
    noise: float = 0.0
    products: list[int] = field(default_factory=list)
    measured: list[list[int]] = field(default_factory=list)

    def product(self, v: Tensor) -> Tensor:
        self.products.append(len(v))
        return v @ self.a * (1 + self.noise)

    def residual(self, x: Tensor, which: Tensor) -> Tensor:
        self.measured.append(which.tolist())
        return self.b[which] - x @ self.a


def equations(k: int = K, **options: float) -> Dense:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(D, D, dtype=torch.float64, generator=generator)
    b = torch.randn(K, D, dtype=torch.float64, generator=generator)
    b[3] *= 1e6
    return Dense(root @ root.T + torch.eye(D, dtype=torch.float64), b[:k], **options)


def solve(
    system: Dense, *, scaled: bool = True, tol: float = 1e-10, max_passes: int = 200, **options: object
) -> Reached:
    by = system.a.diagonal() if scaled else torch.ones(D, dtype=torch.float64)
    start = options.pop("x", torch.zeros_like(system.b))
    size = options.pop("size", system.b.norm(dim=1))
    r = system.b - start @ system.a
    return conjugate_gradients(system, lambda r: r / by, start, r, size, tol=tol, max_passes=max_passes, **options)


def test_right_hand_sides_of_any_size_are_solved_together() -> None:
    system = equations()
    reached = solve(system)
    assert float((reached.r.norm(dim=1) / system.b.norm(dim=1)).max()) <= 1e-10
    torch.testing.assert_close(reached.r, system.b - reached.x @ system.a, rtol=0, atol=1e-8)
    torch.testing.assert_close(reached.x @ system.a, system.b, rtol=1e-8, atol=1e-4)
    assert reached.passes == len(system.products) + len(system.measured)


def test_each_right_hand_side_is_solved_as_if_alone() -> None:
    together = solve(equations())
    for j in range(K):
        alone = equations()
        alone.b = alone.b[j : j + 1]
        torch.testing.assert_close(solve(alone).x[0], together.x[j], rtol=1e-9, atol=1e-9)


def test_what_is_solved_leaves_the_passes() -> None:
    system = equations()
    exact = torch.linalg.solve(system.a, system.b.T).T
    start = torch.zeros_like(system.b)
    start[1:4] = exact[1:4]
    solve(system, x=start)
    assert max(system.products) == 2
    assert all(set(which) <= {0, 4} for which in system.measured)


def test_nothing_to_solve_takes_no_pass() -> None:
    system = equations()
    system.b = torch.zeros_like(system.b)
    reached = solve(system)
    assert reached.passes == 0
    assert not reached.x.any()


def test_a_solve_stops_after_its_passes_and_says_how_far_it_came() -> None:
    system = equations()
    reached = solve(system, scaled=False, max_passes=3)
    assert reached.passes <= 4  # and one that measures where it ended
    torch.testing.assert_close(reached.r, system.b - reached.x @ system.a, rtol=0, atol=1e-6)
    assert float((reached.r.norm(dim=1) / system.b.norm(dim=1)).max()) > 1e-3
    assert reached.history[-1].residual == pytest.approx(float((reached.r.norm(dim=1) / system.b.norm(dim=1)).max()))


def test_true_residuals_correct_products_that_are_wrong() -> None:
    wrong = solve(equations(noise=1e-3), tol=0.0, refresh=10_000, max_passes=60, certify=False)  # none measured
    system = equations(noise=1e-3)
    right = solve(system, refresh=4)
    torch.testing.assert_close(right.x @ system.a, system.b, rtol=1e-8, atol=1e-4)
    for k in range(K):
        assert relative(right.x[k] @ system.a, system.b[k]) < 1e-9
        assert relative(wrong.x[k] @ system.a, system.b[k]) == pytest.approx(1e-3, rel=0.1)  # as wrong as its products
    assert len(system.measured) > 2
    assert len(wrong.history) > 1


def test_a_start_that_was_not_measured_is_measured_before_the_end() -> None:
    system = equations(1)
    exact = torch.linalg.solve(system.a, system.b.T).T
    assert solve(equations(1), x=exact).passes == 0
    unsure = equations(1)
    solve(unsure, x=exact, is_true=False)
    assert unsure.measured


def test_every_iterate_is_kept_and_the_last_one_when_interrupted() -> None:
    system, seen = equations(1), []
    plain = system.product

    def product(v: Tensor) -> Tensor:
        if len(system.products) == 3:
            raise KeyboardInterrupt
        return plain(v)

    system.product = product  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        solve(system, keep=lambda x, passes, last=False: seen.append((x.clone(), passes, last)))
    assert [(passes, last) for _, passes, last in seen] == [(1, False), (2, False), (3, False), (3, True)]
    assert torch.equal(seen[-1][0], seen[-2][0])
