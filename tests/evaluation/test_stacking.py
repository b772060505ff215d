"""Weights of a stack: the minimum of a convex loss under c ≥ 0, and what follows from that."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from lqf.evaluation.calibration import log_loss
from lqf.evaluation.stacking import PRIOR, shares
from lqf.evaluation.stacking import stack_coefficients as coefficients
from lqf.linear.targets import logits

N = 120
WEIGHTS = torch.linspace(0.2, 2, N, dtype=torch.float64)


def models(*signals: float, n_classes: int = 3, seed: int = 0) -> tuple[list[Tensor], Tensor]:
    """Outputs of models that see the labels through independent noise, as clearly as their signals say."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, n_classes, (N,), generator=generator)
    truth = torch.nn.functional.one_hot(labels, n_classes).double()
    if n_classes == 2:
        truth = 2 * truth[:, 1:] - 1
    noise = torch.randn(len(signals), *truth.shape, dtype=torch.float64, generator=generator)
    return [signal * truth + e for signal, e in zip(signals, noise, strict=True)], labels


def stack_coefficients(outputs: list[Tensor], labels: Tensor, weights: Tensor) -> Tensor:
    """Without a prior."""
    return coefficients(outputs, labels, weights, prior=0.0)


def loss(c: Tensor, outputs: list[Tensor], labels: Tensor, weights: Tensor) -> Tensor:
    """Σ s CE(softmax Σ c_k f_k) / Σ s, by its definition."""
    f = logits(torch.stack([ck * o for ck, o in zip(c, outputs, strict=True)]).sum(0))
    entropies = torch.nn.functional.cross_entropy(f, labels, reduction="none")
    return (weights * entropies).sum() / weights.sum()


def slope(c: Tensor, outputs: list[Tensor], labels: Tensor, weights: Tensor) -> Tensor:
    """(K,) by automatic derivatives."""
    at = c.clone().requires_grad_()
    return torch.autograd.grad(loss(at, outputs, labels, weights), at)[0]


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("signals", [(1.0, 0.7), (1.2, 0.0, 0.8), (1.0, -1.0, 0.5, 0.0)], ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_coefficients_are_the_minimum(signals: tuple[float, ...], n_classes: int, seed: int) -> None:
    outputs, labels = models(*signals, n_classes=n_classes, seed=seed)
    c = stack_coefficients(outputs, labels, WEIGHTS)
    assert float(c.min()) >= 0
    g = slope(c, outputs, labels, WEIGHTS)  # Karush, Kuhn and Tucker: no slope where c > 0, none to gain by c > 0
    assert float(g[c > 0].abs().max()) < 1e-7
    assert float(g[c == 0].min() if (c == 0).any() else 0.0) > -1e-7
    given = (outputs, labels, WEIGHTS)
    found = minimize(
        lambda v: float(loss(torch.tensor(v), *given)),
        np.full(len(signals), 0.5),
        jac=lambda v: slope(torch.tensor(v), *given).numpy(),
        bounds=[(0, None)] * len(signals),
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10},
    )
    np.testing.assert_allclose(c.numpy(), found.x, rtol=1e-4, atol=1e-5)
    assert float(loss(c, *given)) <= float(found.fun) + 1e-12


def test_no_point_of_a_grid_is_better() -> None:
    outputs, labels = models(1.5, 0.5)
    c = stack_coefficients(outputs, labels, WEIGHTS)
    best = float(loss(c, outputs, labels, WEIGHTS))
    grid = torch.linspace(0, 4, 41, dtype=torch.float64)
    assert min(float(loss(torch.stack([a, b]), outputs, labels, WEIGHTS)) for a in grid for b in grid) >= best


def test_one_model_gets_the_inverse_temperature_that_suits_it() -> None:
    (f,), labels = models(1.0)
    c = stack_coefficients([f], labels, WEIGHTS)
    for other in (0.99, 1.01):
        assert log_loss(f, labels, float(c), WEIGHTS) < log_loss(f, labels, other * float(c), WEIGHTS)


def test_a_model_that_says_the_opposite_gets_nothing() -> None:
    outputs, labels = models(1.5, -1.0)
    c = stack_coefficients(outputs, labels, WEIGHTS)
    assert float(c[1]) == 0
    torch.testing.assert_close(c[:1], stack_coefficients(outputs[:1], labels, WEIGHTS), rtol=1e-7, atol=0)
    assert stack_coefficients(outputs[1:], labels, WEIGHTS).tolist() == [0]  # alone, too


def test_models_that_make_no_mistakes_get_finite_weights() -> None:
    """Where the classes are separated, every larger c has a lower loss; the shares are what counts."""
    outputs, labels = models(30.0, 20.0)
    c = stack_coefficients(outputs, labels, WEIGHTS)
    assert bool(torch.isfinite(c).all())
    assert float(c.min()) > 0
    assert float(loss(c, outputs, labels, WEIGHTS)) < 1e-6


def test_equal_models_share_the_weight_of_one() -> None:
    (f, g), labels = models(1.0, 0.6)
    c = stack_coefficients([f, g, f], labels, WEIGHTS)
    alone = stack_coefficients([f, g], labels, WEIGHTS)
    assert float(c[0] + c[2]) == pytest.approx(float(alone[0]), rel=1e-6)
    assert float(c[1]) == pytest.approx(float(alone[1]), rel=1e-6)
    assert float(c[0]) == pytest.approx(float(c[2]), rel=1e-6)


def test_the_scale_and_the_order_of_outputs_do_not_matter() -> None:
    outputs, labels = models(1.0, 0.4, 0.8)
    c = stack_coefficients(outputs, labels, WEIGHTS)
    factors = torch.tensor([1e-6, 1.0, 1e5], dtype=torch.float64)
    scaled = stack_coefficients([k * o for k, o in zip(factors, outputs, strict=True)], labels, WEIGHTS)
    torch.testing.assert_close(scaled * factors, c, rtol=1e-7, atol=1e-12)
    torch.testing.assert_close(stack_coefficients(outputs[::-1], labels, WEIGHTS).flip(0), c, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(stack_coefficients(outputs, labels, 7 * WEIGHTS), c, rtol=1e-7, atol=1e-9)


def test_a_weight_of_two_is_a_sample_twice() -> None:
    outputs, labels = models(1.0, 0.5)
    twice = WEIGHTS.clone()
    twice[:30] *= 2
    doubled = [torch.cat([o, o[:30]]) for o in outputs]
    again = stack_coefficients(doubled, torch.cat([labels, labels[:30]]), torch.cat([WEIGHTS, WEIGHTS[:30]]))
    torch.testing.assert_close(stack_coefficients(outputs, labels, twice), again, rtol=1e-7, atol=1e-9)


def test_shares_are_parts_of_the_summed_outputs_and_add_up_to_one() -> None:
    outputs, labels = models(1.0, 0.4, 0.8)
    c = stack_coefficients(outputs, labels, WEIGHTS)
    part = shares(c, outputs)
    assert float(part.sum()) == pytest.approx(1, abs=1e-12)
    size = lambda j: float(c[j]) * float(outputs[j].square().mean().sqrt())  # noqa: E731
    assert float(part[0] / part[2]) == pytest.approx(size(0) / size(2))
    torch.testing.assert_close(shares(c / 10, [10 * o for o in outputs]), part)
    assert shares(torch.tensor([0.0, 2.0]), outputs[:2]).tolist() == [0, 1]


# --- the prior --------------------------------------------------------------------------------------------------------


def test_a_strong_prior_gives_every_model_the_same_weight_in_units_of_its_own_temperature() -> None:
    outputs, labels = models(1.0, 0.4, 0.8)
    own = [float(coefficients([f], labels, WEIGHTS, prior=1e9)) for f in outputs]
    c = coefficients(outputs, labels, WEIGHTS, prior=1e9)
    np.testing.assert_allclose(c.numpy() / own, 1 / 3, rtol=1e-5)


def test_the_coefficients_with_a_prior_are_the_minimum() -> None:
    outputs, labels = models(1.2, 0.5, 0.7)
    own = torch.tensor([float(coefficients([f], labels, WEIGHTS, prior=1e9)) for f in outputs], dtype=torch.float64)
    c = coefficients(outputs, labels, WEIGHTS)
    at = c.clone().requires_grad_()
    penalty = 0.5 * PRIOR * (at / own - 1 / 3).square().sum() / WEIGHTS.sum()
    g = torch.autograd.grad(loss(at, outputs, labels, WEIGHTS) + penalty, at)[0]
    assert float(c.min()) > 0
    assert float((g * own).abs().max()) < 1e-7


def test_evidence_outweighs_the_prior_and_little_of_it_does_not() -> None:
    outputs, labels = models(1.2, 1.0, seed=3)
    few = [f[:10] for f in outputs]
    weak, plain = (shares(coefficients(few, labels[:10], torch.ones(10), prior=p), few) for p in (PRIOR, 0.0))
    assert abs(float(weak[1] - 0.5)) < abs(float(plain[1] - 0.5)) - 0.05
    many = [f.repeat(400, 1) for f in outputs]
    strong, best = (
        shares(coefficients(many, labels.repeat(400), torch.ones(400 * N), prior=p), many) for p in (PRIOR, 0.0)
    )
    assert float(strong[1]) == pytest.approx(float(best[1]), abs=2e-3)
