"""The largest curvature, against the eigenvalues of the whole Hessian."""

import pytest
import torch
from torch import nn

from lqf.training.sharpness import sharpness


def quadratic(rows: int = 40, columns: int = 5) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(rows, columns, generator=g, dtype=torch.float64) * torch.tensor([5.0, 1, 1, 1, 0.5]).double()
    y = torch.randn(rows, 2, generator=g, dtype=torch.float64)
    return nn.Linear(columns, 2).double(), x, y


def test_of_a_quadratic_function_it_is_the_largest_eigenvalue() -> None:
    net, x, y = quadratic()
    found = sharpness(net, lambda: 0.5 * (net(x) - y).square().sum(1).mean(), steps=60)
    one = torch.cat([x, torch.ones(len(x), 1).double()], 1)
    assert found == pytest.approx(float(torch.linalg.eigvalsh(one.T @ one / len(x))[-1]), rel=1e-6)


def test_gradient_descent_is_stable_below_and_not_above_its_bound() -> None:
    net, x, y = quadratic()

    def loss() -> torch.Tensor:
        return 0.5 * (net(x) - y).square().sum(1).mean()

    bound, start = 2 * 1.9 / sharpness(net, loss, steps=60), [w.detach().clone() for w in net.parameters()]
    ends = []
    for rate in (0.9 * bound, 1.1 * bound):
        with torch.no_grad():
            for w, old in zip(net.parameters(), start, strict=True):
                w.copy_(old)
        descent = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
        for _ in range(400):
            descent.zero_grad()
            loss().backward()
            descent.step()
        ends.append(float(loss().detach()))
    assert ends[0] < 2
    assert ends[1] > 1e3


def test_weights_and_statistics_stay_as_they_are() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)).double().train()
    x = torch.randn(6, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    before = {k: v.clone() for k, v in net.state_dict().items()}
    assert sharpness(net, lambda: net(x).square().mean(), steps=3) > 0
    for name, now in net.state_dict().items():
        assert torch.equal(now, before[name]), name
