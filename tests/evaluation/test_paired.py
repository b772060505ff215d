"""Two models compared on the same samples."""

import math

import pytest
import torch
from torch import Tensor

from lqf.evaluation.calibration import calibrate, log_losses
from lqf.evaluation.paired import cross_fitted_losses, gain

N = 40


def outputs(seed: int, signal: float = 2.0) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (N, 3), labels and folds."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(N) % 3
    f = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    f[torch.arange(N), labels] += signal
    return f, labels, torch.arange(N) // 8


def test_the_temperature_of_a_sample_comes_from_the_other_parts() -> None:
    f, labels, parts = outputs(0)
    weights = torch.linspace(0.5, 2, N)
    losses = cross_fitted_losses(f, labels, weights, parts)
    others = parts != 2
    beta = calibrate(f[others], labels[others], weights[others])
    torch.testing.assert_close(losses[~others], log_losses(f[~others], labels[~others], beta))
    changed = labels.clone()
    changed[16] = (changed[16] + 1) % 3
    again = cross_fitted_losses(f, changed, weights, parts)
    own = torch.arange(16, 24)
    torch.testing.assert_close(again[own[1:]], losses[own[1:]])  # its part does not see its label
    assert not torch.isclose(again[24], losses[24])


def test_samples_that_are_not_known_have_no_loss_and_no_say() -> None:
    f, labels, parts = outputs(1)
    some = f.clone()
    some[parts > 2] = torch.nan
    losses = cross_fitted_losses(some, labels, torch.ones(N), parts)
    assert torch.equal(losses.isnan(), parts > 2)
    alone = cross_fitted_losses(f[parts <= 2], labels[parts <= 2], torch.ones(24), parts[parts <= 2])
    torch.testing.assert_close(losses[parts <= 2], alone)


def test_one_known_part_is_cut_for_the_temperature() -> None:
    f, labels, parts = outputs(2)
    f[parts > 0] = torch.nan
    assert bool(cross_fitted_losses(f, labels, torch.ones(N), parts)[parts == 0].isfinite().all())


def test_a_gain_is_the_mean_difference_with_its_standard_error() -> None:
    before, after = torch.rand(2, N, dtype=torch.float64)
    found = gain(before, after, torch.ones(N))
    d = before - after
    assert found.mean == pytest.approx(float(d.mean()))
    assert found.standard_error == pytest.approx(float(d.std() / math.sqrt(N)))
    assert gain(after, before, torch.ones(N)).mean == pytest.approx(-found.mean)


def test_what_is_hard_for_both_drops_out() -> None:
    hard = 10 * torch.rand(N, dtype=torch.float64)
    found = gain(hard + 0.1, hard, torch.ones(N))
    assert found.mean == pytest.approx(0.1)
    assert found.standard_error == pytest.approx(0, abs=1e-9)


def test_weights_count_and_unknown_samples_do_not() -> None:
    before, after = torch.rand(2, N, dtype=torch.float64)
    weights = torch.ones(N)
    weights[:10] = 0
    expected = gain(before[10:], after[10:], torch.ones(N - 10))
    found = gain(before, after, weights)
    assert (found.mean, found.standard_error) == pytest.approx((expected.mean, expected.standard_error))
    after[:10] = torch.nan
    found = gain(before, after, torch.ones(N))
    assert (found.mean, found.standard_error) == pytest.approx((expected.mean, expected.standard_error))


def test_a_gain_counts_from_half_a_percent_of_the_loss_on() -> None:
    before = 1 + torch.rand(N, dtype=torch.float64)
    assert not gain(before, before, torch.ones(N)).counts()
    assert not gain(before, 0.996 * before, torch.ones(N)).counts()
    assert gain(before, 0.994 * before, torch.ones(N)).counts()
    assert not gain(before, 1.1 * before, torch.ones(N)).counts()


def test_what_experience_speaks_for_may_seem_worse_within_the_noise() -> None:
    before = 1 + torch.rand(N, dtype=torch.float64)
    noise = torch.randn(N, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    noise = (noise - noise.mean()) / noise.std() * math.sqrt(N)  # a standard error of one
    for worse, doubt, counts in ((0.5, 0.0, False), (0.5, 1.0, True), (1.5, 1.0, False), (1.5, 2.0, True)):
        assert gain(before, before + noise + worse, torch.ones(N)).counts(doubt) == counts
    assert not gain(before * torch.nan, before, torch.ones(N)).counts(1.0)  # nothing is known


def test_one_sample_has_no_standard_error() -> None:
    assert gain(torch.ones(1), torch.zeros(1), torch.ones(1)).standard_error == math.inf
