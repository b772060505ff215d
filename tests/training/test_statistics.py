"""Batch normalisation with the statistics of new images."""

import torch
from torch import nn

from lqf.training.statistics import has_statistics, with_statistics_of


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2)).eval()


def test_one_batch_gives_in_eval_mode_what_it_gives_in_training() -> None:
    net = network()
    x = 3 + 2 * torch.randn(50, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    adapted = with_statistics_of(net, [x])
    n = x[:, 0].numel()
    expected = net.train()(x)  # the variance of a batch is divided by n, a running one by n − 1
    torch.testing.assert_close(adapted(x), expected, rtol=2 / n, atol=2 / n)
    assert not any(m.training for m in adapted.modules())


def test_statistics_are_the_mean_over_batches_and_the_network_that_was_given_stays() -> None:
    net = network()
    g = torch.Generator().manual_seed(0)
    batches = [1 + torch.randn(8, 3, 4, 4, generator=g) for _ in range(3)]
    adapted = with_statistics_of(net, batches)
    means = torch.stack([net[0](x).mean((0, 2, 3)) for x in batches]).mean(0)
    torch.testing.assert_close(adapted[1].running_mean, means)
    assert float(net[1].running_mean.abs().max()) == 0
    assert adapted[1].momentum == net[1].momentum


def test_networks_without_statistics_are_known() -> None:
    assert has_statistics(network())
    assert not has_statistics(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
