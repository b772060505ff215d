"""The distance to the solution that the steps of conjugate gradients tell, against the true one in the energy norm."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lqf.solvers.block_cg import Reached, conjugate_gradients
from lqf.solvers.energy import EnergyError

D, K = 40, 3
NEAR = 1e-9
"""Relative distances below which rounding decides."""


class System:
    """A x = b for K right-hand sides, A with a given condition number."""

    noise = 0.0
    """By which products are wrong; residuals are not."""

    def __init__(self, seed: int, condition: float = 100.0):
        self.random = torch.Generator().manual_seed(seed)
        q = torch.linalg.qr(self.normal(D, D))[0]
        lam = condition ** torch.linspace(0, 1, D, dtype=torch.float64)
        self.a, root = (q * lam) @ q.T, (q * lam.sqrt()) @ q.T
        self.b = self.normal(K, D) @ root
        self.best = torch.linalg.solve(self.a, self.b.T).T

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=self.random)

    def product(self, v: Tensor) -> Tensor:
        return v @ self.a * (1 + self.noise)

    def residual(self, x: Tensor, which: Tensor) -> Tensor:
        return self.b[which] - x @ self.a

    def preconditioner(self, kind: str) -> Tensor:
        """M: near to A, none, or one that has nothing to do with it."""
        eye, e = torch.eye(D, dtype=torch.float64), self.normal(D, D)
        root = torch.linalg.cholesky(self.a)
        return {"near": root @ (eye + 0.3 * e @ e.T / D) @ root.T, "none": eye, "random": e @ e.T + eye}[kind]

    def distance(self, x: Tensor) -> Tensor:
        """(K,) ‖x − x*‖_A."""
        d = x - self.best
        return (d @ self.a * d).sum(1).sqrt()

    def solve(self, m: Tensor, max_passes: int = 200, tol: float = 0.0, energy: Tensor | None = None) -> Reached:
        inverse, zero = torch.linalg.inv(m), torch.zeros_like(self.b)
        unit = torch.ones(len(self.b), dtype=torch.float64) if energy is None else energy
        size = self.b.norm(dim=1)
        return conjugate_gradients(
            self, lambda r: r @ inverse, zero, self.b, size, tol=tol, max_passes=max_passes, energy=unit
        )


@pytest.mark.parametrize(("kind", "low", "high"), [("near", 0.85, 1.2), ("none", 0.25, 4.0), ("random", 0.15, 12.0)])
def test_the_estimate_is_near_the_true_distance_all_along(kind: str, low: float, high: float) -> None:
    seen = []
    for seed in range(6):
        system = System(seed)
        m, first = system.preconditioner(kind), system.distance(torch.zeros_like(system.b))
        for passes in range(2, 40, 3):
            reached = system.solve(m, passes)
            true = system.distance(reached.x)
            assert reached.energy is not None
            seen.append((reached.energy / true)[true > NEAR * first])
    ratio = torch.cat(seen)
    assert len(ratio) > 50
    assert low < float(ratio.min()) <= float(ratio.max()) < high
    assert 0.8 < float(ratio.median()) < 1.25


def test_the_gains_of_the_steps_from_one_on_are_the_distance_before_it() -> None:
    """Hestenes and Stiefel, which all rests on: after the last step the largest ratio is that of distance to rᵀM⁻¹r."""
    system = System(1, 10.0)
    reached = system.solve(torch.eye(D, dtype=torch.float64), 2 * D)
    error = EnergyError(torch.ones(K, dtype=torch.float64))
    x, every = torch.zeros_like(system.b), torch.arange(K)
    r, p = system.b, system.b
    distances = [system.distance(x)]
    for _ in range(2 * D):
        rz, ap = r.square().sum(1), p @ system.a
        step = (rz / (p * ap).sum(1))[:, None]
        error.step(every, rz, rz * step[:, 0])
        x, r = x + step * p, r - step * ap
        p = r + (r.square().sum(1) / rz)[:, None] * p
        distances.append(system.distance(x))
        if float((distances[-1] / distances[0]).max()) < 1e-11:
            break
    torch.testing.assert_close(x, reached.x, rtol=1e-9, atol=1e-9)
    for before, gained in zip(distances, torch.stack(error._gain).flip(0).cumsum(0).flip(0), strict=False):
        torch.testing.assert_close(gained.sqrt(), before, rtol=1e-6, atol=1e-10 * float(distances[0].max()))


def test_the_largest_ratio_of_gains_to_what_the_preconditioner_says_counts() -> None:
    error, on = EnergyError(torch.tensor([2.0, 1.0], dtype=torch.float64)), torch.arange(2)
    as_64 = lambda *v: torch.tensor(v, dtype=torch.float64)  # noqa: E731
    assert error.relative(on, as_64(1, 1)).tolist() == [torch.inf, torch.inf]
    assert error.relative(on, as_64(1, 0)).tolist() == [torch.inf, 0]  # nothing left to gain
    error.step(on, as_64(10, 4), as_64(4, 2))
    error.step(on[:1], as_64(2), as_64(6))  # the second one has arrived
    # of the first, (4 + 6)/10 and 6/2; of the second, 2/4
    torch.testing.assert_close(error.relative(on, as_64(3, 8)), as_64(9**0.5 / 2, 4**0.5))
    torch.testing.assert_close(error.relative(on[1:], as_64(8)), as_64(4**0.5))
    assert error.relative(on, as_64(0, 0)).tolist() == [0, 0]


def test_the_scale_of_the_preconditioner_does_not_matter() -> None:
    system = System(0)
    m = system.preconditioner("random")
    one, other = system.solve(m, 12), system.solve(2.0**20 * m, 12)
    torch.testing.assert_close(other.energy, one.energy, rtol=1e-9, atol=0)
    torch.testing.assert_close(other.x, one.x, rtol=1e-9, atol=1e-9)


def test_each_right_hand_side_stops_at_its_own_distance() -> None:
    system = System(2)
    unit = system.distance(torch.zeros_like(system.b)) * torch.tensor([1.0, 1e-3, 1e3])
    together = system.solve(system.preconditioner("none"), tol=1e-2, energy=unit)
    true = system.distance(together.x) / unit
    assert together.energy is not None
    assert float(together.energy.max()) <= 1e-2
    assert float(true.max()) <= 3e-2
    assert float(true[1]) > 1e-6  # it went no further than it had to
    for j in range(K):
        alone = System(2)
        alone.b, alone.best = alone.b[j : j + 1], alone.best[j : j + 1]
        reached = alone.solve(torch.eye(D, dtype=torch.float64), tol=1e-2, energy=unit[j : j + 1])
        torch.testing.assert_close(reached.x[0], together.x[j], rtol=1e-9, atol=1e-9)
        assert reached.energy is not None
        assert float(reached.energy[0]) == pytest.approx(float(together.energy[j]), rel=1e-6)
        assert reached.passes <= together.passes


def test_what_wrong_products_take_for_the_solution_is_measured_before_it_stops() -> None:
    system = System(4)
    system.noise = 0.03
    unit = system.distance(torch.zeros_like(system.b))
    reached = system.solve(system.preconditioner("near"), tol=1e-3, energy=unit)
    assert reached.energy is not None
    assert float(reached.energy.max()) <= 1e-3
    assert float((system.distance(reached.x) / unit).max()) <= 2e-3  # products alone end 0.03 away
    torch.testing.assert_close(reached.r, system.b - reached.x @ system.a, rtol=0, atol=1e-10)


def test_a_right_hand_side_of_zeros_is_at_its_solution() -> None:
    system = System(3)
    system.b[1], system.best[1] = 0, 0
    reached = system.solve(system.preconditioner("near"), tol=1e-3)
    assert reached.energy is not None
    assert float(reached.energy[1]) == 0
    assert not reached.x[1].any()
    assert float((system.distance(reached.x)).max()) < 3e-3
    system.b, system.best = torch.zeros_like(system.b), torch.zeros_like(system.b)
    nothing = system.solve(system.preconditioner("none"), tol=1e-3)
    assert nothing.energy is not None
    assert nothing.passes == 0
    assert nothing.energy.tolist() == [0, 0, 0]
