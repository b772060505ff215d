"""The way downhill: to the minimum of a bowl, along the end of the range, and nowhere where it is flat."""

import pytest
import torch

from lqf.changes.tuning.descent import FARTHEST, descend

ZERO = torch.zeros(2, dtype=torch.float64)


def test_it_finds_the_bottom_of_a_narrow_bowl():
    h, best = (
        torch.tensor([[3.0, 1.2], [1.2, 0.6]], dtype=torch.float64),
        torch.tensor([2.0, -3.0], dtype=torch.float64),
    )

    def at(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        return 1.0 + float((x - best) @ h @ (x - best)) / 2, h @ (x - best)

    way = descend(at, ZERO, steps=60)
    losses = [at(x)[0] for x in way]
    assert losses == sorted(losses, reverse=True)
    torch.testing.assert_close(way[-1], best, atol=1e-4, rtol=0)


def test_it_stops_at_the_end_of_the_range_and_moves_along_it():
    def at(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        slope = torch.stack([-0.1 * torch.exp(-x[0] / 20), 0.5 * (x[1] - 1)])
        return float(2 * torch.exp(-x[0] / 20) + 0.25 * (x[1] - 1) ** 2), slope

    end = descend(at, ZERO, steps=60)[-1]
    assert float(end[0]) == pytest.approx(FARTHEST)
    assert float(end[1]) == pytest.approx(1.0, abs=1e-3)


def test_where_it_is_flat_it_stays():
    assert len(descend(lambda x: (1.0, 0 * x), ZERO)) == 1


def test_a_slope_that_misleads_ends_the_way():
    """The loss rises wherever the slope leads to."""
    calls = []

    def at(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        calls.append(x)
        return 1.0 + float(x.abs().sum()), -torch.ones(2, dtype=torch.float64)

    assert len(descend(at, ZERO)) == 1
    assert len(calls) < 20
