"""Ridge strengths by leave-one-out."""

import math

import pytest
import torch
from torch import Tensor

from dense import ridge_regression
from lqf.evaluation.calibration import fit_temperature
from lqf.fitting.choices import choice_of_weight_decay
from lqf.fitting.select_ridge import RELATIVE_GRID, Judge, choose_ridge
from lqf.kernels.ridge import KernelRidge
from lqf.linear.targets import encode, error_rate

N, C, P = 21, 3, 8


def data(signal: float, n: int = N, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features around a mean per class, and labels in turn."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % C
    means = torch.randn(C, P, generator=g, dtype=torch.float64)
    return signal * means[labels] + torch.randn(n, P, generator=g, dtype=torch.float64), labels


def judge_of(labels: Tensor, weights: Tensor | None = None, n_views: int = 1) -> Judge:
    targets = encode(labels, C, 15.0).repeat_interleave(n_views, 0)
    return Judge(targets, labels, torch.ones(len(labels)) if weights is None else weights, n_views)


def test_the_best_trial_is_chosen_with_its_residuals() -> None:
    z, labels = data(1.0)
    judge, kernel = judge_of(labels), z @ z.T

    def factor(omega: float) -> KernelRidge:
        return KernelRidge.from_kernel(kernel + kernel.square() / omega, torch.ones(N))

    choice = choose_ridge(factor, judge.targets, judge, [1.0, 9.0])
    assert len([t for t in choice.trials if t.omega in (1.0, 9.0)]) == 2 * len(RELATIVE_GRID)
    assert choice.best == min(choice.trials, key=lambda t: t.loss)
    assert (choice.mu, choice.omega) == (choice.best.mu, choice.best.omega)
    assert torch.equal(choice.e_loo, factor(choice.omega).loo(judge.targets, choice.mu))


def test_the_grid_goes_on_where_the_best_strength_is_at_its_end() -> None:
    """A kernel so strong, and labels so clear, that the least strength of the grid is too much."""
    z, labels = data(1.0)
    judge = judge_of(labels)
    far = torch.cat([z, 300 * torch.randn(N, 2, dtype=z.dtype, generator=torch.Generator().manual_seed(0))], 1)
    ridge = KernelRidge.from_features(far, torch.ones(N))
    choice = choose_ridge(lambda _: ridge, judge.targets, judge, [1.0])
    lowest = ridge.scale * RELATIVE_GRID[0]
    assert choice.mu < 0.99 * lowest
    assert len(choice.trials) > len(RELATIVE_GRID)
    assert choice.best == min(choice.trials, key=lambda t: t.loss)
    assert choice.at_end == ""
    assert min(t.mu for t in choice.trials) < choice.mu


def test_a_choice_that_stays_at_the_end_says_so() -> None:
    z, labels = data(1.0)
    judge = judge_of(labels)
    ridge = KernelRidge.from_features(1e-9 * z + 1, torch.ones(N))  # nothing but a constant: no strength is too much
    choice = choose_ridge(lambda _: ridge, judge.targets, judge, [1.0])
    assert choice.mu in (min(t.mu for t in choice.trials), max(t.mu for t in choice.trials))
    assert choice.at_end in ("lowest", "highest")
    entry = choice_of_weight_decay(choice, float(N), "head")[0]
    assert entry["at_end"] == choice.at_end


def test_a_body_that_wants_no_change_is_tried_with_less_and_less() -> None:
    z, labels = data(1.0)
    judge, noise = judge_of(labels), torch.randn(N, 5, dtype=z.dtype, generator=torch.Generator().manual_seed(1))

    def factor(omega: float) -> KernelRidge:
        return KernelRidge.from_kernel(z @ z.T + noise @ noise.T / omega, torch.ones(N))

    mu = choose_ridge(lambda _: factor(1e12), judge.targets, judge, [1.0]).mu
    choice = choose_ridge(factor, judge.targets, judge, [0.1, 1.0], [mu])
    assert {t.omega for t in choice.trials} > {0.1, 1.0}
    assert choice.omega > 1.0


def test_the_grid_is_in_units_of_each_kernels_mean_eigenvalue() -> None:
    z, labels = data(1.0)
    ridge = KernelRidge.from_features(z, torch.ones(N))
    choice = choose_ridge(lambda _: ridge, judge_of(labels).targets, judge_of(labels), [1.0])
    unit = float((z @ z.T).trace() / N)
    assert [t.mu for t in choice.trials] == pytest.approx([unit * x for x in RELATIVE_GRID])


def test_only_what_was_given_is_tried() -> None:
    z, labels = data(1.0)
    ridge = KernelRidge.from_features(z, torch.ones(N))
    choice = choose_ridge(lambda _: ridge, judge_of(labels).targets, judge_of(labels), [2.0], [0.5, 7.0])
    assert [(t.mu, t.omega) for t in choice.trials] == [(0.5, 2.0), (7.0, 2.0)]


def test_the_loss_is_the_calibrated_cross_entropy_of_retraining() -> None:
    z, labels = data(0.5)
    weights = torch.rand(N, dtype=torch.float64) + 0.5
    judge, t = judge_of(labels, weights), encode(labels, C, 15.0)
    ridge = KernelRidge.from_features(z, weights)
    for trial in choose_ridge(lambda _: ridge, t, judge, [1.0], [0.3, 5.0]).trials:
        outputs = torch.empty_like(t)
        for i in range(N):
            k = torch.arange(N) != i
            outputs[i] = z[i] @ ridge_regression(z[k], t[k], weights[k], trial.mu)
        assert trial.loss == pytest.approx(fit_temperature(outputs, labels, weights)[1], rel=1e-8)
        assert trial.error == pytest.approx(error_rate(outputs, labels, weights))


def test_noise_asks_for_a_strong_ridge_and_signal_does_not() -> None:
    chosen = {}
    for name, signal in (("noise", 0.0), ("signal", 3.0)):
        z, labels = data(signal, n=60)
        ridge = KernelRidge.from_features(z, torch.ones(60))
        judge = judge_of(labels)
        chosen[name] = choose_ridge(lambda _, r=ridge: r, judge.targets - 5.0, judge, [1.0]).mu / ridge.scale
    assert chosen["noise"] >= 10
    assert chosen["signal"] <= 1


def test_the_same_kernel_over_pairs_and_over_rows_gives_the_same_choice() -> None:
    z, labels = data(1.0)
    judge, r = judge_of(labels), encode(labels, C, 15.0) - 5.0
    rows = KernelRidge.from_features(z, torch.ones(N))
    groups = torch.arange(N).repeat_interleave(C)
    kernel = torch.kron(z @ z.T, torch.eye(C).double())
    pairs = KernelRidge.from_kernel(kernel, torch.ones(N * C), groups)
    a, b = (choose_ridge(lambda _, k=k: k, r, judge, [1.0]) for k in (rows, pairs))
    assert [t.loss for t in a.trials] == pytest.approx([t.loss for t in b.trials], rel=1e-8)
    torch.testing.assert_close(a.e_loo, b.e_loo)


def test_what_cannot_be_computed_is_never_chosen() -> None:
    _, labels = data(1.0)
    judge = judge_of(labels)
    bad = judge.trial(torch.full((N, C), torch.nan), 1.0, 1.0)
    assert math.isinf(bad.loss)
    assert bad.error == 1.0


def test_views_are_judged_together_and_samples_can_be_selected() -> None:
    _, labels = data(1.0)
    weights = torch.rand(N)
    judge = judge_of(labels, weights, n_views=2)
    e = torch.randn(2 * N, C, dtype=torch.float64)
    torch.testing.assert_close(judge.outputs(e), encode(labels, C, 15.0) - (e[::2] + e[1::2]) / 2)
    some = torch.tensor([3, 8, 20])
    rows = torch.tensor([6, 7, 16, 17, 40, 41])
    assert torch.equal(judge.of(some).outputs(e[rows]), judge.outputs(e)[some])
    assert torch.equal(judge.of(some).labels, labels[some])
    assert torch.equal(judge.of(some).weights, weights[some])
