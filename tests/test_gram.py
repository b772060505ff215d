"""Inner products of gradients do not depend on how the work is cut."""

import pytest
import torch

from cases import every_network
from dense import rows
from lqf.gram import TOGETHER, add_gram, body_kernel, every_output
from problems import problem

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@every_network
@pytest.mark.parametrize("budget", [1, 20_000, 1 << 30])
def test_memory_only_decides_how_often_the_data_are_passed(name: str, budget: int) -> None:
    p = problem(name, n=5, n_classes=TOGETHER + 2, heads=2, batch_size=3)  # more outputs than are made together
    j = rows(p)[0].flatten(0, 1)[:, p.model.head_size :]
    kernel = body_kernel(p, every_output(p), TOGETHER + 2, budget=budget)
    torch.testing.assert_close(kernel, j @ j.T, **CLOSE)


@pytest.mark.parametrize("n", [1, 6, 7, 10])
def test_tiles_and_columns_add_up(n: int) -> None:
    x = torch.randn(n, 23, dtype=torch.float64)
    kernel = torch.ones(n, n, dtype=torch.float64)
    add_gram(kernel, x, 0.5, columns=5, tile=3)
    torch.testing.assert_close(kernel, 1 + 0.5 * x @ x.T, **CLOSE)
