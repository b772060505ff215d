"""Batches that fit into the memory."""

import pytest
import torch
from torch import nn

from lqf.linear.batch import COPIES, even_rows, rows_that_fit, saved_bytes
from lqf.linear.linearize import Linearization


def body() -> Linearization:
    return Linearization(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 2)).double().eval())


def test_saved_bytes_are_the_activations() -> None:
    row = torch.randn(1, 3, 6, 6, dtype=torch.float64)
    assert saved_bytes(body(), row) == 8 * (108 + 64)  # the convolution's input and the activation; the weights are not


@pytest.mark.parametrize(("rows", "expected"), [(0.5, 1), (1, 1), (3.9, 2), (4, 4), (100, 64), (5000, 128)])
def test_rows_are_a_power_of_two_that_fits_half_of_the_memory(rows: float, expected: int) -> None:
    row = torch.randn(1, 3, 6, 6, dtype=torch.float64)
    one = COPIES * saved_bytes(body(), row)
    assert rows_that_fit(body(), row, int(2 * rows * one)) == expected


@pytest.mark.parametrize(("total", "rows"), [(1, 8), (256, 256), (257, 136), (300, 152), (1000, 256), (5000, 256)])
def test_even_batches_leave_little_to_fill_up(total: int, rows: int) -> None:
    assert even_rows(total, 256) == rows
    assert -(-total // rows) == -(-total // 256)
