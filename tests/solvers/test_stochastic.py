"""SGD with K-FAC and Adam: their steps, their order, what they resume (`test_agreement` compares the optima)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from closeness import relative
from dense import optimum
from fits import convnet, opened, outline, pictures
from lqf.backbones import load_backbone
from lqf.curvature import precondition
from lqf.curvature.damping import DampedCurvature, Damping
from lqf.data import Preprocess
from lqf.errors import LQFError
from lqf.linear.inputs import Inputs
from lqf.linear.problem import QuadraticProblem
from lqf.linear.ridge import Ridge
from lqf.settings import Settings
from lqf.solvers import SGD, Adam
from lqf.solvers.solution import certify
from lqf.solvers.stochastic import Stochastic
from problems import features, problem


@dataclass(frozen=True)
class Spy(SGD):
    """SGD that notes its gradients and rates and goes nowhere."""

    log: tuple[list[Tensor], list[float], list[int]] = ((), (), ())

    def update(self, state: dict[str, Tensor], g: Tensor, rate: float, step: int) -> None:
        """Note."""
        for column, value in zip(self.log, (g, rate, step), strict=True):
            column.append(value)


def spied(p: QuadraticProblem, **options: Any) -> tuple[list[Tensor], list[float], list[int]]:
    log: tuple[list[Tensor], list[float], list[int]] = ([], [], [])
    Spy(log=log, **options).solve(p)
    return log


@dataclass(frozen=True)
class Newton:
    """The exact curvature as a preconditioner, as far as the solver can tell."""

    h: Tensor

    def solve(self, v: Tensor) -> Tensor:
        """H⁻¹v."""
        return torch.linalg.solve(self.h, v)


def hessian(p: QuadraticProblem) -> Tensor:
    return torch.stack([p.product(e) for e in torch.eye(p.size, dtype=torch.float64)])


def test_the_first_step_is_the_learning_rate_times_the_right_hand_side() -> None:
    p = problem("mlp", weights=torch.rand(14, dtype=torch.float64) + 0.5)
    solution = SGD(learning_rate=1e-3, epochs=1, batch_size=14).solve(p)
    torch.testing.assert_close(solution.delta, 1e-3 * p.rhs(), rtol=1e-10, atol=1e-12)


def test_mini_batch_gradients_have_the_full_gradient_as_their_mean() -> None:
    """Each is scaled by n/|B|, the short last one of an epoch by more."""
    p = problem("mlp", weights=torch.rand(14, dtype=torch.float64) + 0.5)
    gradients = spied(p, epochs=1, batch_size=4)[0]
    shares = [4 / 14, 4 / 14, 4 / 14, 2 / 14]
    mean = sum(s * g for s, g in zip(shares, gradients, strict=True))
    torch.testing.assert_close(mean, -p.rhs(), rtol=1e-10, atol=1e-10)


def test_the_rate_decays_to_zero_along_a_cosine() -> None:
    _, rates, steps = spied(problem(), epochs=5, batch_size=4, learning_rate=0.3)
    assert steps == list(range(1, 21))
    assert rates == pytest.approx([0.15 * (1 + math.cos(math.pi * j / 20)) for j in range(20)])


def seen(p: QuadraticProblem, monkeypatch: pytest.MonkeyPatch, solver: Stochastic) -> list[list[int]]:
    """Row numbers of all batches."""
    out: list[list[int]] = []
    plain = QuadraticProblem.batch_negative_gradient

    def noting(self: QuadraticProblem, rows: Tensor, x: Tensor, delta: Tensor) -> Tensor:
        out.append(rows.tolist())
        assert torch.equal(x, self.inputs.fetch(rows))
        return plain(self, rows, x, delta)

    with monkeypatch.context() as patch:
        patch.setattr(QuadraticProblem, "batch_negative_gradient", noting)
        solver.solve(p)
    return out


def test_every_epoch_visits_every_row_once_in_its_own_order(monkeypatch: pytest.MonkeyPatch) -> None:
    p = problem()
    batches = seen(p, monkeypatch, SGD(epochs=2, batch_size=5, learning_rate=1e-6))
    assert [len(b) for b in batches] == [5, 5, 4] * 2
    first, second = ([i for b in part for i in b] for part in (batches[:3], batches[3:]))
    assert sorted(first) == sorted(second) == list(range(14))
    assert first != second
    assert seen(p, monkeypatch, SGD(epochs=2, batch_size=5, learning_rate=1e-6)) == batches
    assert seen(p, monkeypatch, SGD(epochs=2, batch_size=5, learning_rate=1e-6, seed=1)) != batches


def test_with_the_exact_curvature_sgd_reaches_the_optimum() -> None:
    p = problem("mlp", ridge=Ridge(5.0, 5.0))
    solution = SGD(epochs=150, batch_size=14).solve(p, Newton(hessian(p)))
    assert relative(solution.delta, optimum(p)) < 1e-3
    assert solution.certificate.converged
    assert solution.certificate.relative_residual == certify(p, solution.delta, tol=1).relative_residual
    assert solution.level == "solved"


def test_stopping_early_is_flagged() -> None:
    solution = SGD(epochs=1).solve(problem(), kfac(problem()))
    assert not solution.certificate.converged
    assert "stopped before reaching" in solution.certificate.sentence
    assert [step.passes for step in solution.history] == [1]


def kfac(p: QuadraticProblem) -> DampedCurvature:
    return Damping(1.0, "factored", 5).of(precondition(p, features(p), draws=None), p)


def test_divergence_is_an_error_with_what_to_do() -> None:
    with pytest.raises(LQFError, match=r"sgd diverged with learning rate 1e\+06; give a smaller one"):
        SGD(learning_rate=1e6, epochs=60).solve(problem())


def test_adam_does_not_depend_on_the_scale_of_the_gradient() -> None:
    p = problem("mlp")
    scaled = QuadraticProblem(p.model, p.inputs, p.targets, 1e3 * p.weights, p.fold, Ridge(700.0, 700.0))
    a, b = (Adam(epochs=5, batch_size=5, learning_rate=0.01).solve(q).delta for q in (p, scaled))
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
    assert float(a.abs().max()) <= 15 * 0.01 * 1.5  # about the rate in each step


def test_adams_update_is_torchs() -> None:
    solver, state = Adam(), Adam().start(problem().zero())
    w = torch.zeros_like(state["delta"], requires_grad=True)
    theirs = torch.optim.Adam([w], lr=0.3, eps=0)
    for step in range(1, 6):
        g = torch.randn_like(w).detach()
        solver.update(state, g, 0.3, step)
        w.grad = g
        theirs.step()
    torch.testing.assert_close(state["delta"], w.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("solver", [SGD(epochs=5, batch_size=5), Adam(epochs=5, batch_size=5)])
def test_every_epoch_can_be_resumed_bit_for_bit(solver: Stochastic) -> None:
    p = problem()
    pre = kfac(p) if solver.name == "sgd" else None
    kept: dict[int, dict[str, Tensor]] = {}

    def keep(vectors: dict[str, Tensor], at: int, last: bool = False) -> None:
        kept[at] = {n: t.clone() for n, t in vectors.items()}

    whole = solver.solve(p, pre, checkpoint=keep)
    assert sorted(kept) == [1, 2, 3, 4, 5]
    for at in (1, 4, 5):
        assert torch.equal(solver.solve(p, pre, kept[at], epoch=at).delta, whole.delta)


def augmented_problem(views: str = "none") -> QuadraticProblem:
    x, y = pictures(12, side=12)
    preprocess = Preprocess(size=8, resize=12, views=views)  # type: ignore[arg-type]
    settings = Settings(dtype="float64", head="random")
    return outline(settings, load_backbone(convnet()), opened(x, y, preprocess), preprocess).quadratic


@pytest.mark.parametrize("scheme", ["crop", "resized"])
@pytest.mark.parametrize("views", ["none", "flip"])
def test_augmentation_draws_fresh_images_for_every_epoch(
    monkeypatch: pytest.MonkeyPatch, scheme: str, views: str
) -> None:
    drawn: list[tuple[list[int], np.ndarray]] = []
    plain = Inputs.augmented

    def noting(self: Inputs, rows: Tensor, *rest: Any) -> Tensor:
        x = plain(self, rows, *rest)
        drawn.append((rows.tolist(), x.numpy()))
        return x

    monkeypatch.setattr(Inputs, "augmented", noting)
    p = augmented_problem(views)
    solver = SGD(epochs=2, batch_size=100, augment=scheme, learning_rate=1e-4)
    first = solver.solve(p).delta
    (rows, a), (other_rows, b) = drawn
    assert sorted(rows) == sorted(other_rows) == list(range(len(p.targets)))
    order, other = np.argsort(rows), np.argsort(other_rows)
    assert not np.array_equal(a[order], b[other])
    assert torch.equal(solver.solve(p).delta, first)  # the same seed, the same images
