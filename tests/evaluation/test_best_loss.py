"""The loss at the best temperature: a search by scipy, and its slope by differences."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from lqf.evaluation.best_loss import LEAST, MOST, best_loss
from lqf.evaluation.calibration import log_loss


@pytest.mark.parametrize("outputs", [1, 4])
def test_it_is_the_minimum_over_temperatures(outputs: int):
    f, y = torch.randn(40, outputs, dtype=torch.float64), torch.randint(0, max(2, outputs), (40,))
    w = torch.rand(40, dtype=torch.float64)
    found = best_loss(f, y, w)
    best = minimize_scalar(
        lambda b: log_loss(f, y, b, w), bounds=(LEAST, MOST), method="bounded", options={"xatol": 1e-12}
    )
    assert found.value == pytest.approx(best.fun, abs=1e-12)
    assert found.beta == pytest.approx(best.x, rel=1e-4)


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("strength", [0.0, 0.1])
def test_its_slope_is_that_of_differences(outputs: int, strength: float):
    """Also where the temperature lies at an end of its range (every label is right)."""
    y = torch.randint(0, max(2, outputs), (12,))
    sign = 2.0 * y[:, None] - 1 if outputs == 1 else 2.0 * torch.nn.functional.one_hot(y, outputs) - 1
    noise = torch.randn(12, outputs, dtype=torch.float64)
    f = 0.02 * noise + strength * sign if strength else noise
    w = torch.rand(12, dtype=torch.float64)
    w[3] = 0
    found, way, h = best_loss(f, y, w), torch.randn_like(f), 1e-5
    up, down = (best_loss(f + s * h * way, y, w).value for s in (1, -1))
    assert float((found.slope * way).sum()) == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-11)
    assert not found.slope[3].any()
    if strength:
        assert found.beta == pytest.approx(MOST)


def test_outputs_that_say_nothing_are_as_good_as_guessing():
    found = best_loss(torch.zeros(6, 3), torch.arange(6) % 3, torch.ones(6))
    assert found.value == pytest.approx(np.log(3))
