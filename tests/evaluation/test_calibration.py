"""One temperature from out-of-sample outputs."""

import pytest
import torch
from torch import Tensor

from lqf.evaluation.calibration import _GRID, calibrate, fit_temperature, log_loss, log_losses, probabilities
from lqf.linear.targets import n_outputs


def drawn(beta: float, n_classes: int, n: int = 20_000) -> tuple[Tensor, Tensor]:
    """Outputs, and labels drawn from softmax(β·f)."""
    generator = torch.Generator().manual_seed(n_classes)
    f = 5 * torch.randn(n, n_outputs(n_classes), generator=generator, dtype=torch.float64)
    return f, torch.multinomial(probabilities(f, beta), 1, generator=generator)[:, 0]


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("beta", [0.2, 0.5, 2.0])
def test_a_known_temperature_is_recovered(beta: float, n_classes: int) -> None:
    f, labels = drawn(beta, n_classes)
    assert fit_temperature(f, labels)[0] == pytest.approx(beta, rel=0.05)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_temperature_minimises_the_loss_that_is_returned(n_classes: int) -> None:
    f, labels = drawn(0.3, n_classes, n=200)
    beta, loss = fit_temperature(f, labels)
    assert loss == log_loss(f, labels, beta)
    scan = torch.logspace(-2.5, 1.5, 2000, dtype=torch.float64)
    assert loss <= min(log_loss(f, labels, float(b)) for b in scan) + 1e-5


def test_log_loss_is_the_mean_of_minus_log_probability() -> None:
    f, labels = drawn(0.3, 4, n=50)
    p = torch.exp(0.3 * f) / torch.exp(0.3 * f).sum(1, keepdim=True)
    assert log_loss(f, labels, 0.3) == pytest.approx(float(-p[torch.arange(50), labels].log().mean()), rel=1e-12)
    binary, labels = drawn(0.3, 2, n=50)
    right = torch.sigmoid((2.0 * labels.double() - 1) * 0.3 * binary[:, 0])
    assert log_loss(binary, labels, 0.3) == pytest.approx(float(-right.log().mean()), rel=1e-12)


def test_the_unit_of_the_outputs_does_not_matter() -> None:
    f, labels = drawn(0.4, 3, n=500)
    beta, loss = fit_temperature(f, labels)
    other, same = fit_temperature(10**0.5 * f, labels)  # the grid's steps are 10^(1/20)
    assert other == pytest.approx(beta / 10**0.5, rel=1e-6)
    assert same == pytest.approx(loss, rel=1e-9)


def test_weights_count_as_repetitions() -> None:
    f, labels = drawn(0.4, 3, n=60)
    weights = torch.arange(60) % 3
    expected = fit_temperature(f.repeat_interleave(weights, 0), labels.repeat_interleave(weights))
    assert fit_temperature(f, labels, weights.double()) == pytest.approx(expected, rel=1e-9)


def test_without_information_the_probabilities_are_flat_and_without_errors_sharp() -> None:
    f, labels = drawn(1.0, 3, n=400)
    wrong = (f.argmax(1) + 1) % 3
    assert float(probabilities(f, fit_temperature(f, wrong)[0]).std()) < 0.02
    beta, loss = fit_temperature(f, f.argmax(1))
    assert beta > 10
    assert loss < 0.02


@pytest.mark.parametrize("n_classes", [2, 4])
def test_probabilities_sum_to_one_and_order_like_the_outputs(n_classes: int) -> None:
    f, _ = drawn(1.0, n_classes, n=100)
    p = probabilities(f.float(), 0.2)
    assert p.dtype == torch.float64
    torch.testing.assert_close(p.sum(1), torch.ones(100, dtype=torch.float64))
    if n_classes == 2:
        assert torch.equal(p[:, 1] > 0.5, f[:, 0] > 0)
    else:
        assert torch.equal(p.argsort(1), f.argsort(1))


def test_few_points_of_the_grid_find_what_all_of_them_would() -> None:
    for seed in range(20):
        f, labels = drawn(10 ** (0.2 * (seed - 10)), 2 + seed % 3, n=30 + seed)
        losses = [log_loss(f, labels, float(b)) for b in _GRID]
        k = min(max(losses.index(min(losses)), 1), len(_GRID) - 2)
        assert fit_temperature(f, labels)[0] == pytest.approx(float(_GRID[k]), rel=0.13)  # one step of the grid


def test_losses_of_samples_have_the_loss_as_their_mean() -> None:
    f, labels = drawn(0.5, 4, n=50)
    assert float(log_losses(f, labels, 0.7).mean()) == pytest.approx(log_loss(f, labels, 0.7), rel=1e-12)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_calibrated_model_is_not_certain_where_few_samples_are_all_right(n_classes: int) -> None:
    sure = []
    for n in (12, 48, 192):
        f, _ = drawn(1.0, n_classes, n=n)
        labels = probabilities(f, 1.0).argmax(1)
        assert float(probabilities(f, fit_temperature(f, labels)[0]).amax(1).mean()) > 0.98
        sure.append(float(probabilities(f, calibrate(f, labels)).amax(1).mean()))
    assert 0.8 < sure[0] < 0.9  # of twelve right answers
    assert sure == sorted(sure)
    assert sure[2] > 0.94


def test_with_many_samples_the_assumed_mistake_changes_nothing() -> None:
    f, labels = drawn(0.5, 4)
    assert calibrate(f, labels) == pytest.approx(fit_temperature(f, labels)[0], rel=0.01)
    assert calibrate(f, labels, mistakes=0.0) == fit_temperature(f, labels)[0]


def test_the_assumed_mistake_is_one_more_sample() -> None:
    """Averaged over the samples, so that as many copies of all of them as there are make whole ones of it."""
    f, labels = drawn(0.8, 3, n=9)
    second = f.scatter(1, labels[:, None], -torch.inf).argmax(1)
    more = torch.cat([labels.repeat(9), second])
    assert calibrate(f, labels) == pytest.approx(fit_temperature(f.repeat(10, 1), more)[0], rel=1e-9)
